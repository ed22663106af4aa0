"""Image inputs: sources, decoding and views; no model runs."""

import io
import re
from random import Random

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageEnhance
from vision_models import encoded, make_processor, picture, pictures

import layerwise
from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.preprocessors import ImagePreprocessor, Patches
from layerwise.inputs.image_processor import ImageProcessor
from layerwise.inputs.images import load_image
from layerwise.inputs.modalities import kind_of, open_source, processor_for
from layerwise.inputs.perturbations import images as views
from layerwise.inputs.perturbations.base import perturb
from layerwise.inputs.perturbations.changes import ViewPlan
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Example


def pixels_of(payload):
    return np.asarray(load_image(payload, "example a"))


# --- sources


def write_folder(folder):
    (folder / "deep").mkdir(parents=True)
    for path, number in (("b.png", 1), ("a.PNG", 0), ("deep/c.bmp", 2)):
        form = "BMP" if path.endswith("bmp") else "PNG"
        (folder / path).write_bytes(encoded(picture(number), form))
    (folder / "notes.txt").write_text("no image")
    return folder


def test_a_folder_gives_its_images_with_their_paths_as_ids(tmp_path):
    source = layerwise.images(write_folder(tmp_path / "f"))
    found = list(source)
    assert [example.id for example in found] == ["a.PNG", "b.png", "deep/c.bmp"] and source.unit == "image"
    for number, example in enumerate(found):
        np.testing.assert_array_equal(pixels_of(example.payload), picture(number))
    assert [example.id for example in layerwise.images(tmp_path / "f", limit=2)] == ["a.PNG", "b.png"]
    (only,) = layerwise.images(tmp_path / "f" / "b.png")
    assert only.payload == found[1].payload


def test_tables_hold_bytes_paths_or_what_datasets_stores(tmp_path):
    folder = write_folder(tmp_path / "f")
    content = (folder / "b.png").read_bytes()
    cells = {
        "bytes": content,
        "struct": {"bytes": content, "path": "b.png"},
        "struct of a path": {"bytes": None, "path": str(folder / "b.png")},
    }
    for name, cell in cells.items():
        pd.DataFrame({"image": [cell], "id": ["x"]}).to_parquet(tmp_path / "t.parquet")
        (example,) = layerwise.images(tmp_path / "t.parquet", id_column="id")
        assert (example.id, example.payload) == ("x", content), name
    (folder / "list.csv").write_text("img,n\nb.png,1\ndeep/c.bmp,2\n")
    first, second = layerwise.images(folder / "list.csv", column="img")
    assert first.payload == content and second.payload == (folder / "deep/c.bmp").read_bytes()
    pd.DataFrame({"image": [None, content]}).to_parquet(tmp_path / "t.parquet")
    assert [example is None for _, example in layerwise.images(tmp_path / "t.parquet").all_rows()] == [True, False]


def test_a_hub_data_set_gives_the_bytes_of_its_files(monkeypatch):
    datasets = pytest.importorskip("datasets")
    content = encoded(picture())
    table = datasets.Dataset.from_dict({"image": [{"bytes": content, "path": "a.png"}], "label": [3]})
    stored = table.to_iterable_dataset().cast_column("image", datasets.Image())
    monkeypatch.setattr("layerwise.inputs.media.require_dataset", lambda name: type("Hub", (), {"reached": True}))
    monkeypatch.setattr("datasets.load_dataset", lambda *args, **options: stored)
    source = layerwise.images("someone/pictures", split="test")
    assert source.remote and source.name == "someone/pictures:test"
    assert [example.payload for example in source] == [content]


def test_lists_hold_files_bytes_arrays_and_pillow_images(tmp_path):
    folder = write_folder(tmp_path / "f")
    listed = [folder / "b.png", (folder / "b.png").read_bytes(), picture(1), Image.fromarray(picture(1))]
    found = list(layerwise.images(listed))
    for example in found:
        np.testing.assert_array_equal(pixels_of(example.payload), picture(1))
    assert found[0].payload == found[1].payload and found[2].content == found[3].content
    for wrong, message in (([3], "item 0 of the list is a int, not images"), (picture(), "cannot read images from a")):
        with pytest.raises(InputError, match=message):
            layerwise.images(wrong)


def test_what_holds_no_images_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    pd.DataFrame({"image": ["gone.png"], "img": [b""]}).to_parquet(tmp_path / "t.parquet")
    for data, options, message in (
        (tmp_path / "empty", {}, "contains no images file"),
        (tmp_path / "gone.png", {}, "there is no file"),
        ("demo", {}, "'demo' holds texts, but this model takes images"),
        (tmp_path / "t.parquet", {}, "row 1: column 'image': there is no file .*gone.png"),
        (tmp_path / "t.parquet", {"column": "images"}, "no column 'images'; .*Did you mean --column image"),
        ([], {}, "the list of images is empty"),
    ):
        with pytest.raises(InputError, match=message):
            list(layerwise.images(data, **options))


def test_the_options_of_texts_open_images_too_except_filters(tmp_path):
    pd.DataFrame({"image": [encoded(picture())], "text": ["a square"]}).to_parquet(tmp_path / "t.parquet")
    (example,) = open_source(tmp_path / "t.parquet", "image", column="text")
    assert example.payload == encoded(picture())
    with pytest.raises(InputError, match="filter texts, but this model takes images"):
        open_source(tmp_path / "t.parquet", "image", min_tokens=3)


# --- decoding


def test_every_format_and_mode_becomes_rgb(tmp_path):
    pixels = picture()
    grey = np.asarray(Image.fromarray(pixels).convert("L"))
    for form in ("PNG", "BMP", "TIFF", "WEBP", "PPM"):
        options = {"lossless": True} if form == "WEBP" else {}
        np.testing.assert_array_equal(pixels_of(encoded(pixels, form, **options)), pixels, err_msg=form)
    np.testing.assert_array_equal(pixels_of(encoded(grey)), np.repeat(grey[..., None], 3, axis=2))
    np.testing.assert_array_equal(pixels_of(grey), np.repeat(grey[..., None], 3, axis=2))
    with_alpha = np.dstack([pixels, np.full(pixels.shape[:2], 9, np.uint8)])
    np.testing.assert_array_equal(pixels_of(encoded(with_alpha)), pixels)
    np.testing.assert_array_equal(pixels_of(with_alpha), pixels)
    few = Image.fromarray(pixels).quantize(7)
    file = io.BytesIO()
    few.save(file, "GIF", transparency=3)
    np.testing.assert_array_equal(pixels_of(file.getvalue()), np.asarray(few.convert("RGB")))


def test_a_photograph_is_turned_as_its_file_says():
    pixels, exif = picture(), Image.Exif()
    exif[0x0112] = 6  # taken with the camera turned by a quarter
    turned = pixels_of(encoded(pixels, exif=exif.tobytes()))
    np.testing.assert_array_equal(turned, np.rot90(pixels, -1))


def test_what_is_no_image_is_named_with_its_example():
    deep = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4)).save(deep, "PNG")
    mode = re.escape(Image.open(deep).mode)  # its name depends on the version of Pillow
    whole = encoded(picture(size=(90, 80)))
    for payload, message in (
        (b"", "example a is an empty file"),
        (b"no image", "example a is not an image in a format that Pillow reads"),
        (whole[: len(whole) // 2], "example a is not an image that can be read"),
        (deep.getvalue(), f"mode {mode}, more than 8 bits per channel"),
        ("a text", "example a is a text, but this model takes images"),
        (np.zeros((4, 5, 3)), "shape .4, 5, 3. and dtype float64; pass uint8"),
        (np.zeros((3, 4, 5), np.uint8), "shape .3, 4, 5."),
    ):
        with pytest.raises(InputError, match=message):
            load_image(payload, "example a")


def test_an_image_that_would_fill_the_memory_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 99)
    with pytest.raises(InputError, match="example a is too large .*pixels"):
        load_image(encoded(picture(size=(12, 10))), "example a")  # a warning of Pillow
    with pytest.raises(InputError, match="example a is too large .*pixels"):
        load_image(encoded(picture(size=(120, 100))), "example a")  # an error of Pillow


def test_without_pillow_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("layerwise.inputs.images.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'layerwise\[vision\]'"):
        load_image(encoded(picture()), "example a")


# --- the processor


def preprocessor():
    return ImagePreprocessor(make_processor("vit"), Patches(7, special=1), (21, 21), "pixel_values")


def test_pixels_are_those_of_the_image_processor_one_by_one():
    processor = processor_for(preprocessor())
    assert kind_of(preprocessor()) == "image" and isinstance(processor, Processor)
    examples = [Example(str(n), encoded(pixels)) for n, pixels in enumerate(pictures(3))]
    prepared = processor.prepare(examples, 10)
    made = processor.collate(prepared)["pixel_values"]
    for number, pixels in enumerate(pictures(3)):
        alone = make_processor("vit")(images=Image.fromarray(pixels), return_tensors="pt")["pixel_values"][0]
        assert np.array_equal(made[number], alone)
    assert [p.sizes for p in prepared] == [(10,)] * 3 and processor.size(examples[0].payload) == 10
    assert processor.size(b"no image") == float("inf")


def test_a_batch_has_all_views_of_the_first_image_first():
    processor = ImageProcessor(preprocessor())
    examples = [Example(str(n), pixels) for n, pixels in enumerate(pictures(2))]
    made = processor.collate(processor.prepare(examples, 10, ViewPlan(views=2)))["pixel_values"]
    first, second = (processor.collate(processor.prepare(examples, 10))["pixel_values"][k] for k in (0, 1))
    assert np.array_equal(made[0], first) and np.array_equal(made[3], second) and len(made) == 6
    alone = processor.collate(processor.prepare(examples[1:], 10, ViewPlan(views=1)))["pixel_values"]
    assert np.array_equal(alone[1], made[4]), "a view depends on its example and its number only"


def test_a_template_is_refused():
    with pytest.raises(InputError, match="a template is for texts, but this model takes images"):
        processor_for(preprocessor(), "query: {text}")


# --- views


def view(number=0, *, seed=0, strength=0.3, pixels=None, example="a"):
    image = Image.fromarray(picture(size=(64, 48)) if pixels is None else pixels)
    return perturb(image, views.perturb_image, strength, seed=seed, example_id=example, name=number)


def test_views_are_seeded_and_keep_the_size_of_the_image():
    given = [np.asarray(view(number)) for number in range(20)]
    assert all(pixels.shape == (48, 64, 3) for pixels in given) and len({p.tobytes() for p in given}) == 20
    np.testing.assert_array_equal(given[3], view(3))
    assert any((np.asarray(view(n, seed=1)) != given[n]).any() for n in range(3))
    assert any((np.asarray(view(n, example="b")) != given[n]).any() for n in range(3))


def test_a_stronger_view_is_further_from_its_image():
    pixels = picture(size=(64, 48)).astype(float)

    def distance(strength):
        made = [np.asarray(view(n, strength=strength)).astype(float) for n in range(40)]
        either_side = [min(np.abs(m - pixels).mean(), np.abs(m - pixels[:, ::-1]).mean()) for m in made]
        return np.mean(either_side)

    assert distance(0.001) < 1.5 < distance(0.1) < distance(0.3) < distance(1.0)


def test_a_crop_lies_inside_the_image_and_keeps_the_share_that_its_strength_allows():
    for strength in (0.1, 0.5, 1.0):
        shares = []
        for number in range(300):
            left, top, right, bottom = views.crop_box((64, 48), Random(number), strength)
            assert 0 <= left < right <= 64 and 0 <= top < bottom <= 48
            shares.append((right - left) * (bottom - top) / (64 * 48))
            stretched = (right - left) / (bottom - top) / (64 / 48)
            assert (3 / 4) ** strength * 0.9 < stretched < (4 / 3) ** strength * 1.1
        assert min(shares) == pytest.approx(1 - 0.92 * strength, abs=0.05) and max(shares) > 0.9


def test_a_crop_is_the_part_of_the_image_in_its_box():
    image, random = Image.fromarray(picture(size=(64, 48))), 5
    left, top, right, bottom = views.crop_box(image.size, Random(random), 1.0)
    part = image.crop((left, top, right, bottom)).resize(image.size, Image.Resampling.BICUBIC)
    difference = np.abs(np.asarray(views.crop(image, Random(random), 1.0)).astype(int) - np.asarray(part))
    assert np.percentile(difference, 95) <= 1 and (right - left) < 64


class Fixed(Random):
    """Draws the given number from the unit interval, and its mirror image from -1 to 1; keeps the order of lists."""

    def __init__(self, number):
        super().__init__(0)
        self.number = number

    def random(self):
        return self.number

    def uniform(self, low, high):
        return low + (high - low) * self.number

    def shuffle(self, items):
        pass


def test_each_change_is_what_it_says():
    image = Image.fromarray(picture(size=(64, 48)))
    pixels = np.asarray(image)
    np.testing.assert_array_equal(views.mirror(image, Fixed(0.4), 1.0), pixels[:, ::-1])
    assert views.mirror(image, Fixed(0.6), 1.0) is image
    grey = np.asarray(views.make_grey(image, Fixed(0.1), 1.0))
    assert (grey[..., 0] == grey[..., 1]).all() and (grey[..., 0] == grey[..., 2]).all()
    luma = pixels @ [0.299, 0.587, 0.114]
    assert np.abs(grey[..., 0] - luma).max() <= 1
    assert views.make_grey(image, Fixed(0.1), 0.3) is image, "0.1 is more than 0.2 x 0.3"
    assert views.blur(image, Fixed(0.5), 1.0) is image
    assert np.asarray(views.blur(image, Fixed(0.4), 1.0)).std() < pixels.std()
    brighter = np.asarray(ImageEnhance.Brightness(image).enhance(1.4))
    assert np.abs(brighter - np.clip(1.4 * pixels.astype(float), 0, 255)).max() <= 1, "what Pillow calls brightness"


def test_hues_turn_around_the_colour_circle():
    red = Image.new("RGB", (2, 2), (255, 0, 0))
    assert np.abs(np.asarray(views.shift_hue(red, 1 / 3))[0, 0].astype(int) - [0, 255, 0]).max() <= 6
    assert np.abs(np.asarray(views.shift_hue(red, -1 / 3))[0, 0].astype(int) - [0, 0, 255]).max() <= 6
    np.testing.assert_array_equal(views.shift_hue(Image.new("RGB", (2, 2), (7, 7, 7)), 0.2), np.full((2, 2, 3), 7))


def test_shares_of_mirrored_grey_and_blurred_views_are_those_of_simclr():
    image = Image.fromarray(picture(size=(16, 12)))
    for step, share in ((views.mirror, 0.5), (views.change_colours, 0.8), (views.make_grey, 0.2), (views.blur, 0.5)):
        changed = np.mean([step(image, Random(number), 1.0) is not image for number in range(1000)])
        assert changed == pytest.approx(share, abs=0.05), step.__name__

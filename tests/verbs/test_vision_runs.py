"""Runs on images: every command that takes them, and what works on texts only."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from families import DEPTH, WIDTH
from vision_models import encoded, make_processor, make_vision_model, picture, pictures, save_vision

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.probe.labelled import read_labelled

N = 9


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return save_vision(tmp_path_factory.mktemp("models") / "vit", "vit")


@pytest.fixture(scope="module")
def swin(tmp_path_factory):
    return save_vision(tmp_path_factory.mktemp("models") / "swin", "swin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same images as files, and in a table with their bytes and labels."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "png").mkdir()
    contents = [encoded(pixels) for pixels in pictures(N)]
    for number, content in enumerate(contents):
        (folder / "png" / f"{number}.png").write_bytes(content)
    names = [f"{number}.png" for number in range(N)]
    pd.DataFrame({"image": contents, "name": names}).to_parquet(folder / "images.parquet")
    return folder


def values_of(table):
    return table.to_pandas().set_index(["layer", "tokens", "pooling", "rows", "metric"]).value


def test_every_metric_is_finite_and_folders_tables_and_arrays_agree(vit, folder):
    options = {"metrics": "all", "tokens": "all,no_special"}
    files = layerwise.scan(vit, folder / "png", shard_size=4, **options)
    values = values_of(files)
    assert {name for *_, name in values.index} >= {m.name for m in layerwise.CATALOG} and np.isfinite(values).all()
    rows = layerwise.scan(vit, layerwise.images(folder / "images.parquet", id_column="name"), **options)
    np.testing.assert_allclose(values, values_of(rows), rtol=1e-4, atol=1e-6)
    assert files.run["data"]["fingerprint"] == rows.run["data"]["fingerprint"]
    facts = files.run["data"]
    assert (facts["prompts"], facts["cut"], facts["tokens"], facts["unit"]) == (N, 0, 10 * N, "image")
    with_class, without = (values.xs(word, level="tokens").to_numpy() for word in ("all", "no_special"))
    assert (with_class != without).mean() > 0.5, "the class token is special"


def test_the_vectors_are_class_tokens_and_means_over_patches(vit):
    means = layerwise.embed(vit, pictures(3), layers="0,2", tokens="no_special")
    classes = layerwise.embed(vit, pictures(3), layers="2,last", pooling="first")
    model, processor = make_vision_model("vit"), make_processor("vit")
    assert list(means.columns) == ["id", "layer_0", "layer_2"]
    for number, pixels in enumerate(pictures(3)):
        with torch.inference_mode():
            out = model(**processor(images=[pixels], return_tensors="pt"), output_hidden_states=True)
        for layer in (0, 2):
            expected = out.hidden_states[layer][0, 1:].mean(0)
            np.testing.assert_allclose(means[f"layer_{layer}"][number], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(classes.layer_2[number], out.hidden_states[2][0, 0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(classes["last"][number], out.last_hidden_state[0].mean(0), rtol=1e-4, atol=1e-5)


def test_a_model_whose_width_changes_is_scanned_embedded_and_reported(swin, folder, tmp_path):
    table = layerwise.scan(swin, folder / "png", metrics="all", out=tmp_path / "run")
    values = values_of(table)
    assert np.isfinite(values).all() and set(values.index.get_level_values("layer")) == set(range(DEPTH + 1))
    vectors = layerwise.embed(swin, folder / "png", layers="all")
    widths = [len(vectors[f"layer_{layer}"][0]) for layer in range(DEPTH + 1)]
    assert widths == [WIDTH // 4, WIDTH // 2, WIDTH, WIDTH]
    rank = values.xs("effective_rank", level="metric").groupby("layer").max()
    assert (rank <= np.minimum(widths, N) + 1e-6).all()
    layerwise.report(tmp_path / "run", html=tmp_path / "report.html")
    again = layerwise.scan(swin, folder / "png", metrics="all", shard_size=2)
    np.testing.assert_allclose(values, values_of(again), rtol=1e-4, atol=1e-6)


def test_padding_cannot_be_counted_where_there_is_none(vit):
    with pytest.raises(InputError, match="with_padding is for models that pad every input"):
        layerwise.scan(vit, pictures(N), tokens="with_padding", metrics="curvature")


def test_views_are_seeded_and_their_strength_matters(vit):
    def loss(**options):
        return values_of(layerwise.scan(vit, pictures(N), metrics="infonce", **options))

    assert loss().equals(loss(seed=0)) and not loss().equals(loss(seed=1))
    assert loss(view_strength=1.0).mean() > loss(view_strength=0.001).mean()


def test_images_that_cannot_be_read_are_left_out_if_that_is_allowed(vit, tmp_path):
    whole = encoded(picture(size=(90, 80)))
    contents = [encoded(pixels) for pixels in pictures(N)] + [b"no image", whole[: len(whole) // 2]]
    with pytest.raises(InputError, match="is not an image"):
        layerwise.scan(vit, contents, metrics="curvature")
    table = layerwise.scan(vit, contents, metrics="curvature", allow_missing=2, out=tmp_path)
    assert len(table.run["data"]["missing"]) == 2 and table.run["data"]["prompts"] == N


def square_data(path, n, first=0):
    """Images with a bright or a dark square: classes that any layer separates."""
    random = np.random.default_rng(first)
    images, labels = [], []
    for number in range(n):
        pixels = picture(first + number, (24, 24)) // 2 + 60
        pixels[6:18, 6:18] = 250 if number % 2 else random.integers(0, 9)
        images.append(encoded(pixels))
        labels.append("bright" if number % 2 else "dark")
    pd.DataFrame({"image": images, "square": labels}).to_parquet(path)
    return path


def test_probes_of_every_layer_find_what_is_in_the_image(vit, swin, tmp_path):
    train, test = square_data(tmp_path / "train.parquet", 30), square_data(tmp_path / "test.parquet", 20, 100)
    for model, probes in ((vit, "linear,knn,attention,weighted_sum"), (swin, "linear,knn,attention")):
        table = layerwise.probe(model, train, test, label="square", probes=probes, tokens="no_special", epochs=8)
        scores = table.to_pandas()
        assert set(scores.layer) >= set(range(DEPTH + 1)) and scores[scores.layer == 1].value.max() >= 85
    read = read_labelled(layerwise.labelled(train, "square", kind="image"), None, ["square"], test_share=0.5, seed=0)
    assert {example.labels for example in read.examples} == {("bright",), ("dark",)}


def test_layers_of_different_width_have_no_weighted_sum(swin, tmp_path):
    train = square_data(tmp_path / "train.parquet", 40)
    with pytest.raises(InputError, match="weighted_sum adds layers, but .* different widths.*--probes linear,knn"):
        layerwise.probe(swin, train, label="square")


def test_two_models_are_compared_and_reported(vit, folder, tmp_path):
    other = save_vision(tmp_path / "aimv2", "aimv2")
    for name, model in (("a", vit), ("b", other)):
        layerwise.scan(model, folder / "png", out=tmp_path / name, metrics="prompt_entropy,dataset_entropy,curvature")
    assert f"over {N} " in str(layerwise.compare([tmp_path / "a", tmp_path / "b"]))
    layerwise.report([tmp_path / "a", tmp_path / "b"], html=tmp_path / "report.html")
    assert f"{N} images" in (tmp_path / "report.html").read_text()


def test_a_campaign_scans_images_and_notices_that_one_has_changed(vit, swin, folder, tmp_path):
    copied = shutil.copytree(folder / "png", tmp_path / "png")
    plan = {
        "out": str(tmp_path / "out"),
        "models": [vit, swin],
        "data": {"pictures": {"data": str(copied)}},
        "settings": {"one": {"metrics": "curvature"}},
    }
    table = layerwise.campaign(Campaign.parse(plan, "plan.yaml"))
    alone = layerwise.scan(vit, folder / "png", metrics="curvature")
    assert values_of(table.where(model=vit)).equals(values_of(alone))
    (copied / "3.png").write_bytes(encoded(picture(50)))
    with pytest.raises(RunError, match="png has changed since .* was scanned"):
        layerwise.campaign(Campaign.parse(plan, "plan.yaml"))


def test_the_command_line_scans_and_embeds_images(vit, folder, tmp_path, capsys):
    data = ["--data", str(folder / "images.parquet"), "--id-column", "name"]
    assert main(["scan", vit, *data, "--out", str(tmp_path / "run"), "--metrics", "curvature"]) == 0
    said = capsys.readouterr().err
    assert "reading 9 images from" in said and "next: layerwise report" in said and "layerwise pick" not in said
    assert main(["embed", vit, "--data", str(folder / "png"), "--out", str(tmp_path / "v.parquet")]) == 0
    frame = pd.read_parquet(tmp_path / "v.parquet")
    assert list(frame.columns) == ["id", *(f"layer_{k}" for k in range(DEPTH + 1)), "last"] and len(frame) == N
    assert f"wrote {N} images x {DEPTH + 2} layers" in capsys.readouterr().err
    assert main(["scan", vit]) == 2
    assert "'demo' holds texts, but this model takes images" in capsys.readouterr().err


def test_what_works_on_texts_only_says_so(vit, folder, tmp_path):
    layerwise.scan(vit, folder / "png", out=tmp_path / "run", metrics="curvature")
    steps = {
        "doctor": lambda: layerwise.doctor(vit),
        "eval": lambda: layerwise.eval(vit, "STSBenchmark", out=tmp_path / "eval"),
        "tradeoff": lambda: layerwise.lab.tradeoff(tmp_path / "run", "curvature", model=vit),
    }
    for step, call in steps.items():
        with pytest.raises(InputError, match=f"^{step} works on texts only, but this model has no tokenizer"):
            call()
    with pytest.raises(InputError, match="inputs do not support the stress random; supported: none"):
        layerwise.lab.stress(vit, layerwise.images(folder / "png"), kind="random")
    with pytest.raises(LayerwiseError, match="this model takes images, and layerwise has no images to judge it"):
        layerwise.pick(vit)
    assert layerwise.pick(tmp_path / "run", rule="min:curvature").recipe.layer in range(DEPTH + 1)

"""Audio inputs: sources, decoding, resampling and views; no model runs."""

import struct
from random import Random

import numpy as np
import pandas as pd
import pytest
import torch
from audio_models import RATE, clips, make_extractor, tone, wav_bytes

import layerwise
from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.preprocessors import AudioPreprocessor, Frames
from layerwise.inputs.audio_processor import AudioProcessor
from layerwise.inputs.decoding import load_samples, resample
from layerwise.inputs.modalities import MODALITIES, kind_of, open_source, processor_for
from layerwise.inputs.perturbations import audio as views
from layerwise.inputs.perturbations.base import perturb
from layerwise.inputs.perturbations.changes import ViewPlan
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Clip, Example
from layerwise.metrics.ops.tokens import counted_tokens

EVERYTHING = 10**9


def load(payload, rate=RATE, limit=EVERYTHING):
    return load_samples(payload, rate, limit, "example a")


# --- sources


def write_folder(folder):
    (folder / "deep").mkdir(parents=True)
    for path, number in (("b.wav", 1), ("a.WAV", 0), ("deep/c.flac", 2)):
        form = "FLAC" if path.endswith("flac") else "WAV"
        (folder / path).write_bytes(wav_bytes(tone(2_000, number), form=form))
    (folder / "notes.txt").write_text("not audio")
    return folder


def test_a_folder_gives_its_audio_files_with_their_paths_as_ids(tmp_path):
    source = layerwise.audio(write_folder(tmp_path / "f"))
    found = list(source)
    assert [example.id for example in found] == ["a.WAV", "b.wav", "deep/c.flac"] and source.unit == "audio clip"
    for number, example in enumerate(found):
        np.testing.assert_allclose(load(example.payload)[0], tone(2_000, number), atol=2**-15)
    assert [example.id for example in layerwise.audio(tmp_path / "f", limit=2)] == ["a.WAV", "b.wav"]
    (only,) = layerwise.audio(tmp_path / "f" / "b.wav")
    assert only.payload == found[1].payload


def test_tables_hold_bytes_paths_or_what_datasets_stores(tmp_path):
    folder = write_folder(tmp_path / "f")
    content = (folder / "b.wav").read_bytes()
    cells = {
        "bytes": content,
        "struct": {"bytes": content, "path": "b.wav"},
        "struct of a path": {"bytes": None, "path": str(folder / "b.wav")},
    }
    for name, cell in cells.items():
        pd.DataFrame({"audio": [cell], "id": ["x"]}).to_parquet(tmp_path / "t.parquet")
        (example,) = layerwise.audio(tmp_path / "t.parquet", id_column="id")
        assert (example.id, example.payload) == ("x", content), name
    (folder / "list.csv").write_text("sound,n\nb.wav,1\ndeep/c.flac,2\n")
    first, second = layerwise.audio(folder / "list.csv", column="sound")
    assert first.payload == content and second.payload == (folder / "deep/c.flac").read_bytes()
    pd.DataFrame({"audio": [None, content]}).to_parquet(tmp_path / "t.parquet")
    assert [example is None for _, example in layerwise.audio(tmp_path / "t.parquet").all_rows()] == [True, False]


def test_a_hub_data_set_gives_the_bytes_of_its_files(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    content = wav_bytes(tone(2_000))
    table = datasets.Dataset.from_dict({"audio": [{"bytes": content, "path": "a.wav"}], "text": ["zero"]})
    stored = table.to_iterable_dataset().cast_column("audio", datasets.Audio(sampling_rate=RATE))
    monkeypatch.setattr("layerwise.inputs.media.require_dataset", lambda name: type("Hub", (), {"reached": True}))
    monkeypatch.setattr("datasets.load_dataset", lambda *args, **options: stored)
    source = layerwise.audio("someone/speech", split="test")
    assert source.remote and source.name == "someone/speech:test"
    assert [example.payload for example in source] == [content]


def test_lists_hold_files_bytes_and_arrays_with_their_rate(tmp_path):
    folder, (samples, rate) = write_folder(tmp_path / "f"), clips(1)[0]
    listed = [folder / "b.wav", str(folder / "b.wav"), (folder / "b.wav").read_bytes(), (samples, rate)]
    listed.append({"array": samples, "sampling_rate": rate})
    found = list(layerwise.audio(listed))
    assert len({example.digest for example in found[:3]}) == 3, "the same content occurs three times"
    assert found[0].payload == found[1].payload == found[2].payload
    assert found[3].content == found[4].content != Example("", Clip(samples, rate + 1)).content
    with pytest.raises(InputError, match="item 0 of the list is an array without a rate"):
        layerwise.audio([samples])
    with pytest.raises(InputError, match="cannot read clips from a ndarray"):
        layerwise.audio(samples)


def test_what_holds_no_audio_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "train.parquet").write_bytes(b"")
    pd.DataFrame({"audio": ["gone.wav"], "sound": [b""]}).to_parquet(tmp_path / "t.parquet")
    for data, options, message in (
        (tmp_path / "empty", {}, "contains no audio file"),
        (tmp_path / "tables", {}, "folder of tables. Pass one of them, such as .*train.parquet"),
        (tmp_path / "gone.wav", {}, "there is no file"),
        ("demo", {}, "'demo' holds texts, but this model takes audio"),
        (tmp_path / "t.parquet", {}, "row 1: column 'audio': there is no file .*gone.wav"),
        (tmp_path / "t.parquet", {"column": "sounds"}, "no column 'sounds'; .*Did you mean --column sound"),
        ([], {}, "the list of clips is empty"),
    ):
        with pytest.raises(InputError, match=message):
            list(layerwise.audio(data, **options))


def test_the_options_of_texts_open_audio_too_except_filters(tmp_path):
    pd.DataFrame({"audio": [wav_bytes(tone(2_000))], "text": ["zero"]}).to_parquet(tmp_path / "t.parquet")
    (example,) = open_source(tmp_path / "t.parquet", "audio", column="text")  # the default of the command line
    assert isinstance(example.payload, bytes)
    for option in ({"only": "wikitext"}, {"min_tokens": 3}):
        with pytest.raises(InputError, match="filter texts, but this model takes audio"):
            open_source(tmp_path / "t.parquet", "audio", **option)


# --- decoding


def test_files_are_decoded_as_they_were_written():
    samples = tone(3_000)
    for form in ("WAV", "FLAC"):
        np.testing.assert_allclose(load(wav_bytes(samples, form=form))[0], samples, atol=2**-15)


def test_channels_are_averaged_and_integers_scaled():
    left, right = tone(2_000, 1), tone(2_000, 2)
    both = np.stack([left, right], axis=1)
    for payload in (wav_bytes(both), Clip(both, RATE), Clip((both * 2**15).astype(np.int16), RATE)):
        np.testing.assert_allclose(load(payload)[0], (left + right) / 2, atol=2**-14)


def test_a_long_clip_is_truncated_and_that_is_reported():
    samples = tone(5 * RATE)
    for payload in (wav_bytes(samples), Clip(samples, RATE)):
        cut, truncated = load(payload, limit=RATE)
        np.testing.assert_allclose(cut, samples[:RATE], atol=2**-15)
        assert truncated and len(cut) == RATE
    assert not load(Clip(samples, RATE), limit=5 * RATE)[1] and not load(wav_bytes(samples), limit=5 * RATE)[1]


def test_a_truncated_file_is_resampled_with_what_follows():
    """The filter sees a second beyond the end, so that the samples before it are those of the whole clip."""
    samples = tone(5 * RATE)
    cut, _ = load(wav_bytes(samples, rate=44_100), limit=RATE // 2)
    whole, _ = load(wav_bytes(samples, rate=44_100))
    np.testing.assert_allclose(cut, whole[: RATE // 2], atol=1e-6)


FLAC = wav_bytes(tone(2_000), form="FLAC")
WAV = wav_bytes(tone(2_000))
HOSTILE = {
    "not audio": b"hello, this is a text" * 9,
    "empty file": b"",
    "only a header": wav_bytes(np.zeros(0, np.float32)),
    "cut in its header": WAV[:20],
    "rate of zero": WAV[:24] + struct.pack("<I", 0) + WAV[28:],
    "absurd rate": WAV[:24] + struct.pack("<I", 2**31 - 1) + WAV[28:],
    "absurd channels": WAV[:22] + struct.pack("<H", 60_000) + WAV[24:],
    "nan": Clip(np.array([0.0, np.nan, 0.0]), RATE),
    "infinity": Clip(np.array([0.0, np.inf, 0.0]), RATE),
    "no samples": Clip(np.zeros(0), RATE),
    "three axes": Clip(np.zeros((2, 2, 2)), RATE),
    "texts": Clip(np.array(["a"]), RATE),
    "rate of an array": Clip(np.zeros(9), 0),
    "a text": "a text",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_input_is_refused_by_the_name_of_its_example(case):
    with pytest.raises(InputError, match="example a "):
        load(HOSTILE[case])


@pytest.mark.parametrize("content", [
    WAV[:40] + struct.pack("<I", 2**32 - 1) + WAV[44:], WAV[:-1001], FLAC[:21] + b"\x0f\xff\xff\xff\xff" + FLAC[26:],
], ids=["claims four gigabytes", "cut off", "claims 2^36 samples"])  # fmt: skip
def test_a_header_that_claims_too_much_costs_no_memory(content):
    """What is there is read, or the file is refused; nothing is allocated for what is not."""
    import tracemalloc

    tracemalloc.start()
    try:
        samples, _ = load(content)
        assert 0 < len(samples) <= 2_000
    except InputError as error:
        assert "example a" in str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


def test_without_soundfile_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("layerwise.inputs.decoding.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'layerwise\[audio\]'"):
        load(WAV)
    assert len(load(Clip(tone(100), RATE))[0]) == 100, "arrays need no decoder"


# --- resampling, against sines that are known at any rate


@pytest.mark.parametrize("rates", [(8_000, 16_000), (44_100, 16_000), (48_000, 16_000), (22_050, 16_000)])
def test_a_sine_is_the_same_sine_at_another_rate(rates):
    old, new = rates
    frequency = 0.9 * min(old, new) / 2
    sine = lambda rate: np.sin(2 * np.pi * frequency * np.arange(rate) / rate)  # noqa: E731
    made = resample(sine(old).astype(np.float32), old, new)
    assert len(made) == new and made.dtype == np.float32
    middle = slice(new // 4, 3 * new // 4)  # at the ends the filter sees silence
    np.testing.assert_allclose(made[middle], sine(new)[middle], atol=1e-3)


@pytest.mark.parametrize("rate", [44_100, 48_000, 32_000])
def test_what_the_new_rate_cannot_hold_is_removed_not_mirrored(rate):
    sine = np.sin(2 * np.pi * 8_050 * np.arange(rate) / rate).astype(np.float32)  # just above half of 16 kHz
    made = resample(sine, rate, 16_000)[4_000:12_000]
    assert np.sqrt(np.mean(made**2)) < 10 ** (-80 / 20)


def test_the_length_is_rounded_up_and_the_same_rate_changes_nothing():
    assert [len(resample(np.ones(n, np.float32), 44_100, 16_000)) for n in (1, 2, 3, 442)] == [1, 1, 2, 161]
    samples = tone(100)
    assert resample(samples, RATE, RATE) is samples


# --- views


def test_noise_has_the_signal_to_noise_ratio_it_is_given():
    samples = tone(200_000)
    for ratio in (0.0, 10.0, 30.0):
        noise = views.noise_at(samples, Random(1), ratio) - samples
        found = 10 * np.log10(np.mean(samples.astype(float) ** 2) / np.mean(noise.astype(float) ** 2))
        assert abs(found - ratio) < 0.1
    by_strength = views.add_noise(samples, Random(1), 0.1)
    np.testing.assert_allclose(by_strength, views.noise_at(samples, Random(1), 20.0), atol=1e-6)
    silence = np.zeros(100, np.float32)
    assert np.array_equal(views.perturb_audio(silence, Random(1), 0.3), silence)


class Fixed(Random):
    """Draws one number from -1 to 1."""

    def __init__(self, number):
        super().__init__(0)
        self.number = number

    def uniform(self, low, high):
        assert (low, high) == (-1, 1)
        return self.number


def test_gain_shift_and_speed_change_by_their_amounts():
    samples = tone(10_000)
    np.testing.assert_allclose(views.change_gain(samples, Fixed(1), 1.0), 10 * samples, rtol=1e-5)
    np.testing.assert_allclose(views.change_gain(samples, Fixed(-1), 0.3), samples * 10 ** (-6 / 20), rtol=1e-5)
    later, earlier = views.shift(samples, Fixed(1), 0.3), views.shift(samples, Fixed(-1), 0.3)
    assert not later[:600].any() and np.array_equal(later[600:], samples[:-600])
    assert not earlier[-600:].any() and np.array_equal(earlier[:-600], samples[600:])
    sine = np.sin(2 * np.pi * 500 * np.arange(10_000) / RATE).astype(np.float32)
    for direction, frequency in ((1, 600), (-1, 400)):
        changed = views.change_speed(sine, Fixed(direction), 1.0)
        expected = np.sin(2 * np.pi * frequency * np.arange(10_000) / RATE)
        assert len(changed) == len(sine)
        np.testing.assert_allclose(changed[1_000:7_000], expected[1_000:7_000], atol=1e-3)
    assert not views.change_speed(sine, Fixed(1), 1.0)[8_400:].any(), "a faster clip ends in silence"


def test_a_view_depends_on_seed_example_and_number_alone():
    samples = tone(4_000)

    def view(seed, example, number):
        return perturb(samples, views.perturb_audio, 0.3, seed=seed, example_id=example, name=number)

    assert np.array_equal(view(0, "a", 1), view(0, "a", 1))
    others = [view(0, "a", 1), view(1, "a", 1), view(0, "b", 1), view(0, "a", 2)]
    assert all(not np.array_equal(others[0], other) for other in others[1:])
    assert all(other.shape == samples.shape and other.dtype == np.float32 for other in others)


# --- the processor


def processor_of(frames=None):
    frames = frames or Frames(strides=(160, 2), window=50)
    return AudioProcessor(AudioPreprocessor(make_extractor("whisper"), frames, "input_features"))


def test_an_audio_preprocessor_is_recognised():
    preprocessor = processor_of().preprocessor
    assert isinstance(processor_for(preprocessor), AudioProcessor) and isinstance(processor_of(), Processor)
    assert kind_of(preprocessor) == "audio" and kind_of(make_extractor) == "text" and "audio" in MODALITIES
    with pytest.raises(InputError, match="a template is for texts"):
        processor_for(preprocessor, "about {text}")
    assert processor_of().stress_kinds == ()


def test_masks_cover_the_frames_of_real_audio_and_the_padding_of_the_window():
    processor = processor_of()
    prepared = processor.prepare([Example("a", Clip(tone(8_000), RATE)), Example("b", Clip(tone(321), RATE))], 50)
    masks = processor.masks(prepared, processor.collate(prepared), 50)
    assert masks.real.sum(dim=-1).tolist() == [[25], [2]] and masks.real[0, 0, :25].all()
    hidden = torch.zeros(2, 1, 50, 4)
    assert masks.padding is not None
    both = counted_tokens(hidden, masks.real, masks.special, "with_padding", padding=masks.padding)
    assert both.all() and torch.equal(counted_tokens(hidden, masks.real, masks.special, "all"), masks.real)
    with pytest.raises(InputError, match="with_padding is for models that pad every input to one length"):
        counted_tokens(hidden, masks.real, masks.special, "with_padding")


def test_max_length_is_in_frames_and_truncates_the_clip():
    processor, example = processor_of(), Example("a", Clip(tone(9_000), RATE))
    whole, cut = processor.prepare([example], 50)[0], processor.prepare([example], 10)[0]
    assert (whole.truncated, whole.views[0].frames, whole.sizes) == (False, 29, (50,))
    assert (cut.truncated, cut.views[0].frames, cut.sizes) == (True, 10, (50,))
    expected = processor.prepare([Example("a", Clip(tone(9_000)[:3_200], RATE))], 50)
    inputs = [processor.collate(prepared)["input_features"] for prepared in ([cut], expected)]
    assert torch.equal(*inputs)


def test_views_are_made_when_the_batch_is_built_and_have_the_frames_of_the_original():
    processor, plan = processor_of(), ViewPlan(views=2, strength=0.3, seed=3)
    (prepared,) = processor.prepare([Example("a", Clip(tone(6_000), RATE))], 50, plan)
    inputs = processor.collate([prepared])["input_features"]
    assert inputs.shape[0] == 3 and prepared.sizes == (50, 50, 50)
    masks = processor.masks([prepared], {"input_features": inputs}, 50)
    assert masks.real.shape == (1, 3, 50) and masks.real.sum(dim=-1).tolist() == [[19, 19, 19]]
    copy = perturb(tone(6_000), views.perturb_audio, 0.3, seed=3, example_id="a", name=2)
    assert torch.equal(inputs[2], processor.features(copy)) and not torch.equal(inputs[0], inputs[1])


def test_a_clip_that_is_too_short_is_named_with_what_it_needs():
    processor = processor_of(Frames(strides=(5, 4), kernels=(10, 8)))
    with pytest.raises(InputError, match="example a is too short: it has 44 samples .* needs at least 45"):
        processor.prepare([Example("a", Clip(tone(44), RATE))], 50)
    assert processor.size(Clip(tone(44), RATE)) == float("inf") and processor.size(Clip(tone(45), RATE)) == 1
    assert processor.size(b"nothing") == float("inf") == processor.size("a text")

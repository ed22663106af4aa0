"""Audio through the verbs: scan, resume, compare, embed, campaign, the command line, Ray; and real Whisper models."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from audio_models import RATE, clips, save_audio, tone, wav_bytes
from families import DEPTH, WIDTH
from stopping import stop_after

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.inputs.decoding import resample
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.scan import worker

N = 9


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    return save_audio(tmp_path_factory.mktemp("audio") / "whisper", "whisper")


@pytest.fixture(scope="module")
def wav2vec2(tmp_path_factory):
    return save_audio(tmp_path_factory.mktemp("audio") / "wav2vec2", "wav2vec2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of wav files, and the same clips in a Parquet file beside it."""
    place = tmp_path_factory.mktemp("clips")
    (place / "wav").mkdir()
    contents = [wav_bytes(samples, rate) for samples, rate in clips(N)]
    for number, content in enumerate(contents):
        (place / "wav" / f"{number}.wav").write_bytes(content)
    table = {"audio": contents, "name": [f"{n}.wav" for n in range(N)], "text": ["zero"] * N}
    pd.DataFrame(table).to_parquet(place / "clips.parquet")
    return place


def values_of(table):
    return table.to_pandas().set_index(["layer", "norm", "tokens", "rows", "metric"]).value


def test_every_metric_scans_clips_and_says_what_they_are(whisper, folder):
    table = layerwise.scan(whisper, folder / "wav", metrics="all", tokens="all,with_padding", shard_size=5)
    values = values_of(table)
    assert {name for *_, name in values.index} >= {metric.name for metric in layerwise.CATALOG}
    assert np.isfinite(values).all() and set(table.to_pandas().layer) == set(range(DEPTH + 1))
    real, padded = (values.xs(word, level="tokens").sort_index() for word in ("all", "with_padding"))
    assert (real != padded).any()
    facts = table.run["data"]
    assert (facts["prompts"], facts["cut"], facts["tokens"], facts["unit"]) == (N, 0, N * 50, "audio clip")
    assert (table.model.part, table.model.width) == ("encoder", WIDTH)


def test_a_folder_a_table_and_a_list_are_the_same_clips(whisper, folder):
    sources = [folder / "wav", layerwise.audio(folder / "clips.parquet", id_column="name")]
    tables = [layerwise.scan(whisper, data, metrics="prompt_entropy,curvature") for data in sources]
    assert values_of(tables[0]).equals(values_of(tables[1]))
    assert tables[0].data.same_as(tables[1].data)
    unnamed = layerwise.scan(whisper, sorted((folder / "wav").iterdir()), metrics="prompt_entropy,curvature")
    np.testing.assert_allclose(values_of(unnamed), values_of(tables[0]), rtol=1e-5)


@pytest.mark.parametrize("model", ["whisper", "wav2vec2"])
def test_shards_batches_and_resuming_do_not_matter(model, folder, tmp_path, request, monkeypatch):
    model = request.getfixturevalue(model)
    options = {"metrics": "prompt_entropy,dataset_entropy,infonce", "threads": 1, "shard_size": 4}
    whole = layerwise.scan(model, folder / "wav", out=tmp_path / "whole", **options)
    one = layerwise.scan(model, folder / "wav", **options | {"shard_size": 100, "batch_tokens": 1})
    np.testing.assert_allclose(values_of(one), values_of(whole), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", stop_after(1))
    with pytest.raises(KeyboardInterrupt):
        layerwise.scan(model, folder / "wav", out=tmp_path / "run", **options)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", worker.scan_shard)
    resumed = layerwise.scan(model, folder / "wav", out=tmp_path / "run", **options)
    assert values_of(resumed).equals(values_of(whole))
    states = [next((tmp_path / name).glob("state-*")).read_bytes() for name in ("whole", "run")]
    assert states[0] == states[1]
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", None)  # a finished run is read, not computed
    assert values_of(layerwise.scan(model, folder / "wav", out=tmp_path / "run", **options)).equals(values_of(whole))


def test_truncated_clips_are_counted(whisper):
    table = layerwise.scan(whisper, clips(N), metrics="curvature", max_length=12)
    assert table.run["data"]["cut"] == sum(len(samples) > 12 * 320 for samples, _ in clips(N)) > 0
    with pytest.raises(InputError, match="max_length 51 is more than this model supports; use at most 50"):
        layerwise.scan(whisper, clips(N), max_length=51)


def test_vectors_are_means_over_real_frames(whisper):
    from audio_models import make_audio_model, make_extractor

    vectors = layerwise.embed(whisper, clips(3), layers="0,2,last", pooling=None)
    padded = layerwise.embed(whisper, clips(3), layers="2", tokens="with_padding")
    assert list(vectors.columns) == ["id", "layer_0", "layer_2", "last"]
    encoder, extractor = make_audio_model("whisper").encoder, make_extractor("whisper")
    for row, all_frames, (samples, rate) in zip(vectors.itertuples(), padded.layer_2, clips(3), strict=True):
        with torch.inference_mode():
            made = extractor(samples, sampling_rate=rate, return_tensors="pt")
            out = encoder(**made, output_hidden_states=True)
        frames = -(-len(samples) // 320)
        np.testing.assert_allclose(row.layer_0, out.hidden_states[0][0, :frames].mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(row.layer_2, out.hidden_states[2][0, :frames].mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(row.last, out.last_hidden_state[0, :frames].mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(all_frames, out.hidden_states[2][0].mean(0), rtol=1e-4, atol=1e-5)


def test_padding_cannot_be_counted_where_there_is_none(wav2vec2):
    with pytest.raises(InputError, match="with_padding is for models that pad every input"):
        layerwise.scan(wav2vec2, clips(N), tokens="with_padding", metrics="curvature")


def test_views_are_seeded_and_their_strength_matters(whisper):
    def loss(**options):
        return values_of(layerwise.scan(whisper, clips(N), metrics="infonce", **options))

    assert loss().equals(loss(seed=0)) and not loss().equals(loss(seed=1))
    assert loss(view_strength=1.0).mean() > loss(view_strength=0.001).mean()


def test_clips_that_cannot_be_read_are_left_out_if_that_is_allowed(whisper, folder, tmp_path):
    contents = [(folder / "wav" / f"{n}.wav").read_bytes() for n in range(N)] + [b"no audio"]
    with pytest.raises(InputError, match="is not an audio file"):
        layerwise.scan(whisper, contents, metrics="curvature")
    table = layerwise.scan(whisper, contents, metrics="curvature", allow_missing=1, out=tmp_path)
    assert len(table.run["data"]["missing"]) == 1 and table.run["data"]["prompts"] == N


def test_two_models_are_compared_and_reported(whisper, wav2vec2, folder, tmp_path):
    for name, model in (("a", whisper), ("b", wav2vec2)):
        layerwise.scan(model, folder / "wav", out=tmp_path / name, metrics="prompt_entropy,dataset_entropy,curvature")
    assert f"over {N} " in str(layerwise.compare([tmp_path / "a", tmp_path / "b"]))
    layerwise.report([tmp_path / "a", tmp_path / "b"], html=tmp_path / "report.html")
    assert "audio clip" in (tmp_path / "report.html").read_text()


def test_a_campaign_scans_audio_and_text_models_on_their_own_data(whisper, wav2vec2, folder, tmp_path):
    plan = {
        "out": str(tmp_path / "out"),
        "models": [whisper, wav2vec2],
        "data": {"clips": {"data": str(folder / "clips.parquet"), "id_column": "name"}},
        "settings": {"one": {"metrics": "curvature"}},
    }
    table = layerwise.campaign(Campaign.parse(plan, "plan.yaml"))
    assert set(table.to_pandas().model) == {whisper, wav2vec2}
    alone = layerwise.scan(whisper, layerwise.audio(folder / "clips.parquet", id_column="name"), metrics="curvature")
    assert values_of(table.where(model=whisper)).equals(values_of(alone))


def test_a_campaign_notices_that_a_file_of_a_folder_has_changed(whisper, folder, tmp_path):
    copied = shutil.copytree(folder / "wav", tmp_path / "wav")
    plan = {
        "out": str(tmp_path / "out"),
        "models": [whisper],
        "data": {"clips": {"data": str(copied)}},
        "settings": {"one": {"metrics": "curvature"}},
    }
    layerwise.campaign(Campaign.parse(plan, "plan.yaml"))
    layerwise.campaign(Campaign.parse(plan, "plan.yaml"))
    (copied / "3.wav").write_bytes(wav_bytes(tone(4_000, 50)))
    with pytest.raises(RunError, match="wav has changed since .* was scanned"):
        layerwise.campaign(Campaign.parse(plan, "plan.yaml"))


def test_the_command_line_scans_and_embeds_clips(whisper, folder, tmp_path, capsys):
    data = ["--data", str(folder / "clips.parquet"), "--id-column", "name"]
    options = ["--metrics", "curvature", "--max-length", "12", "--part", "encoder"]
    assert main(["scan", whisper, *data, "--out", str(tmp_path / "run"), *options]) == 0
    said = capsys.readouterr()
    assert "reading 9 audio clips from" in said.err and "of 9 audio clips were cut at --max-length" in said.err
    assert main(["embed", whisper, "--data", str(folder / "wav"), "--out", str(tmp_path / "v.parquet")]) == 0
    frame = pd.read_parquet(tmp_path / "v.parquet")
    assert list(frame.columns) == ["id", *(f"layer_{k}" for k in range(DEPTH + 1)), "last"] and len(frame) == N
    assert f"wrote {N} audio clips x {DEPTH + 2} layers" in capsys.readouterr().err
    assert main(["scan", whisper]) == 2
    assert "'demo' holds texts, but this model takes audio" in capsys.readouterr().err


def test_what_works_on_texts_only_says_so(whisper, folder, tmp_path):
    layerwise.scan(whisper, folder / "wav", out=tmp_path / "run", metrics="curvature")
    steps = {
        "doctor": lambda: layerwise.doctor(whisper),
        "export": lambda: layerwise.export(whisper, 1, tmp_path / "model"),
        "eval": lambda: layerwise.eval(whisper, "STSBenchmark", out=tmp_path / "eval"),
        "tradeoff": lambda: layerwise.lab.tradeoff(tmp_path / "run", "curvature", model=whisper),
    }
    for step, call in steps.items():
        with pytest.raises(InputError, match=f"^{step} works on texts only, but this model has no tokenizer"):
            call()
    with pytest.raises(InputError, match="inputs do not support the stress random; supported: none"):
        layerwise.lab.stress(whisper, layerwise.audio(folder / "wav"), kind="random")
    for run, fit in ((whisper, folder / "wav"), (tmp_path / "run", ["a text of some words"] * 9)):
        with pytest.raises(
            LayerwiseError, match="takes audio, and layerwise has no clips|takes audio: choose by a rule"
        ):
            layerwise.pick(run, fit=fit)
    assert layerwise.pick(tmp_path / "run", rule="min:curvature").recipe.layer in range(DEPTH + 1)


@pytest.mark.long
def test_ray_gives_the_bits_of_the_local_runner(whisper, folder, tmp_path):
    ray = pytest.importorskip("ray")
    options = {"metrics": "prompt_entropy,infonce", "threads": 1, "shard_size": 4}
    layerwise.scan(whisper, folder / "wav", out=tmp_path / "local", **options)
    try:
        layerwise.scan(whisper, folder / "wav", out=tmp_path / "ray", engine=layerwise.Cluster(workers=2), **options)
    finally:
        ray.shutdown()
    for pattern in ("state-*", "table.parquet"):
        found = [next((tmp_path / name).glob(pattern)).read_bytes() for name in ("local", "ray")]
        assert found[0] == found[1]


# --- real models and real speech


@pytest.mark.parametrize(("name", "depth", "width"), [("whisper-tiny.en", 4, 384), ("whisper-base", 6, 512)])
def test_a_real_whisper_reads_spoken_digits(real_model, shared, name, depth, width):
    model, digits = real_model(name), shared("data/fsdd/test.parquet")
    source = layerwise.audio(digits, id_column="file", limit=4)
    vectors = layerwise.embed(model, source, layers=f"0,{depth},last")
    padded = layerwise.embed(model, source, layers=str(depth), tokens="with_padding")
    from scipy.io import wavfile
    from transformers import AutoFeatureExtractor, WhisperModel

    encoder = WhisperModel.from_pretrained(model).encoder.eval()
    extractor = AutoFeatureExtractor.from_pretrained(model)
    for row, other, example in zip(vectors.itertuples(), padded.itertuples(), source, strict=True):
        rate, samples = wavfile.read(io.BytesIO(example.payload))
        samples = resample((samples / 2**15).astype(np.float32), rate, RATE)  # held to sines in test_audio_inputs
        with torch.inference_mode():
            made = extractor(samples, sampling_rate=RATE, return_tensors="pt")
            out = encoder(**made, output_hidden_states=True)
        frames = int(np.ceil(50 * len(samples) / RATE))
        assert len(row.layer_0) == width and frames < 100
        np.testing.assert_allclose(row.last, out.last_hidden_state[0, :frames].mean(0), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(row.layer_0, out.hidden_states[0][0, :frames].mean(0), rtol=1e-3, atol=1e-4)
        assert cosine(getattr(other, f"layer_{depth}"), getattr(row, f"layer_{depth}")) < 0.99, "silence counts here"


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def test_equal_clips_at_two_rates_have_nearly_equal_vectors(real_model):
    """The same sound, written at 8 and at 16 kHz: resampling keeps what both can hold."""
    from scipy.signal import butter, sosfiltfilt

    sound = sosfiltfilt(butter(8, 3_000, fs=RATE, output="sos"), tone(RATE, 3)).astype(np.float32)
    model = real_model("whisper-tiny.en")
    full, half = layerwise.embed(model, [(sound, RATE), (sound[::2], RATE // 2)], layers="4").layer_4
    assert cosine(full, half) > 0.99

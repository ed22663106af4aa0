"""pick for speech and image models: pairs of clips or images judge, and the layer that is known to be best is found."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from audio_models import RATE, make_audio_model, make_extractor, save_audio, tone, wav_bytes
from vision_models import encoded, make_processor, make_vision_model, picture, save_vision

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.inputs.audio import AUDIO
from layerwise.models.opening import open_network
from layerwise.verbs.pick.partners import media_partner_probe
from layerwise.verbs.pick.probes import PARTNER
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.run import default_rulebook

COUNT = 18
IMAGE_PAIRS = [(picture(n), np.roll(picture(n), 2, axis=1)) for n in range(COUNT)]
CLIP_PAIRS = [((tone(6000, n), RATE), (0.5 * tone(6000, n)[::-1].copy(), RATE)) for n in range(COUNT)]
MODELS = {
    "image": lambda: (make_vision_model("vit"), make_processor("vit")),
    "audio": lambda: (make_audio_model("whisper"), make_extractor("whisper")),
}
PAIRS = {"image": IMAGE_PAIRS, "audio": CLIP_PAIRS}


@pytest.fixture
def bold(monkeypatch):
    """The best recipe is chosen, however little better it is than the last layer."""
    book = replace(default_rulebook(), margin=-1000)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: book)


def ranks_by_hand(firsts, seconds):
    """The mean reciprocal rank of partners in both directions, in points."""
    norms = (np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12) for rows in (firsts, seconds))
    one, other = (np.array(rows) / norm for rows, norm in zip((firsts, seconds), norms, strict=True))
    near = one @ other.T
    found = [1 / (row >= row[i]).sum() for side in (near, near.T) for i, row in enumerate(side)]
    return 100 * np.mean(found)


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_the_layer_that_is_known_to_be_best_is_found(kind, bold):
    """The output of the second block is made the same for every input: only layers 0 and 1 can tell them apart."""
    model, pairs = MODELS[kind](), PAIRS[kind]
    open_network(model).structure.blocks[1].register_forward_hook(
        lambda block, given, out: 0 * out if not isinstance(out, tuple) else (0 * out[0], *out[1:])
    )
    found = layerwise.pick(model, pairs=pairs)
    inputs = [one for one, _ in pairs] + [other for _, other in pairs]
    expected = {}
    for pooling in ("mean", "first")[: 1 + (kind == "image")]:
        vectors = layerwise.embed(model, inputs, layers="0,1,2", pooling=pooling, max_length=found.recipe.max_length)
        for layer in range(3):
            rows = vectors[f"layer_{layer}"].tolist()
            expected[pooling, layer] = ranks_by_hand(rows[:COUNT], rows[COUNT:])
    assert found.recipe.layer < 2 and not found.keep_last and found.input_kind == kind
    of_layers = {row.layer: row.scores[PARTNER] for row in found.layers[:-1]}
    for layer in (1, 2):
        assert of_layers[layer] == pytest.approx(expected[found.recipe.pooling, layer], abs=0.5), "ties by rounding"
    assert of_layers[2] < 15, "all inputs are the same there"
    best = max(score for (pooling, layer), score in expected.items() if (pooling, layer) != ("first", 0))
    assert of_layers[found.recipe.layer] == pytest.approx(best, abs=0.5)
    noun = {"image": "images", "audio": "clips"}[kind]
    assert found.judged_on == f"pairs of {COUNT} {noun} of yours" and found.layers[0].relative_time is not None
    said = " ".join(found.why)
    assert f"maps are fitted on other {noun} of yours" in said and "tokenizer" not in said


def test_a_table_of_images_and_the_export_of_what_it_chose(bold, tmp_path, capsys):
    model = save_vision(tmp_path / "model", "vit")
    rows = []
    for number, pair in enumerate(IMAGE_PAIRS):
        names = [f"{number}-{side}.png" for side in "ab"]
        for name, pixels in zip(names, pair, strict=True):
            (tmp_path / name).write_bytes(encoded(pixels))
        rows.append(names)
    table = tmp_path / "pairs.csv"
    pd.DataFrame(rows, columns=["query", "document"]).to_csv(table, index=False)
    assert main(["pick", model, "--pairs", str(table), "--save", str(tmp_path / "picked")]) == 0
    printed = capsys.readouterr().out
    assert "export" in printed and "texts" not in printed and "sentences" not in printed
    assert max(len(line) for line in printed.partition("next:")[0].splitlines()) <= 80
    loaded = Pick.load(tmp_path / "picked")
    assert loaded.input_kind == "image" and loaded.options["pairs"] == str(table)
    in_memory = layerwise.pick(model, pairs=IMAGE_PAIRS)
    assert in_memory.layers[1].scores == pytest.approx(loaded.layers[1].scores, abs=0.01)
    if not loaded.keep_last:
        layerwise.export(model, loaded, tmp_path / "small")
        assert json.loads((tmp_path / "small" / "layerwise.json").read_text())["recipe"]["layer"] == loaded.recipe.layer


def test_maps_are_fitted_on_other_images_only():
    model = MODELS["image"]()
    others = [picture(100 + n) for n in range(40)]
    found = layerwise.pick(model, [*others, IMAGE_PAIRS[0][0]], pairs=IMAGE_PAIRS)
    assert "linear maps were fitted on 40 images" in " ".join(found.why)
    with pytest.raises(InputError, match="all images are in the pairs"):
        layerwise.pick(model, [one for one, _ in IMAGE_PAIRS], pairs=IMAGE_PAIRS)


def test_a_speech_model_closes_with_embed(bold, tmp_path, capsys):
    model = save_audio(tmp_path / "model", "whisper")
    rows = []
    for number, pair in enumerate(CLIP_PAIRS):
        for side, (samples, _) in zip("ab", pair, strict=True):
            (tmp_path / f"{number}{side}.wav").write_bytes(wav_bytes(samples))
        rows.append([f"{number}a.wav", f"{number}b.wav"])
    pd.DataFrame(rows, columns=["query", "document"]).to_csv(tmp_path / "pairs.csv", index=False)
    words = ["pick", model, "--pairs", str(tmp_path / "pairs.csv"), "--prefer", "fast"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    if "keep the last layer" not in printed:
        assert "speech models cannot be exported" in printed and "layerwise embed" in printed
    assert "pairs of 18 clips of yours" in printed and "export removes" not in printed
    found = layerwise.pick(model, pairs=CLIP_PAIRS, prefer="fast")
    assert found.keep_last or "cannot be exported" in found.next_step()
    with pytest.raises(InputError, match=r"speech models cannot be exported: leave export= \(--export\) out"):
        layerwise.pick(model, pairs=CLIP_PAIRS, export=tmp_path / "out")


def test_pairs_of_media_that_cannot_be_used(tmp_path):
    model = MODELS["audio"]()
    with pytest.raises(InputError, match="layerwise has no clips to judge it: pass pairs"):
        layerwise.pick(model)
    with pytest.raises(InputError, match="templates, servable can be used with texts only"):
        layerwise.pick(model, pairs=CLIP_PAIRS, templates="prompteol", servable=True)
    with pytest.raises(InputError, match="row 1: there is no file 'hello'"):
        layerwise.pick(model, pairs=[("hello", "world")] * 20)
    with pytest.raises(InputError, match="row 1 is an array without a rate, not audio"):
        layerwise.pick(model, pairs=[one for one, _ in CLIP_PAIRS])
    with pytest.raises(InputError, match="of 5 first audio clips and 5 second audio clips are too few"):
        layerwise.pick(model, pairs=CLIP_PAIRS[:5])
    with pytest.raises(InputError, match="has no column 'document'"):
        layerwise.pick(model, pairs=pd.DataFrame({"query": ["a"], "other": ["b"]}))
    with pytest.raises(InputError, match="take audio and image, and cannot be ranked"):
        layerwise.pick([model, MODELS["image"]()], pairs=CLIP_PAIRS)


def test_the_same_clip_twice_shows_nothing_and_partners_are_matched_by_content():
    clip = (tone(3000, 99), RATE)
    with pytest.warns(UserWarning, match="1 pairs of the same audio clip are left out"):
        probe, payloads = media_partner_probe([*CLIP_PAIRS, (clip, clip)], AUDIO)
    assert probe.units == COUNT and set(probe.texts) <= set(payloads)


def test_image_models_are_ranked():
    models = [MODELS["image"](), (make_vision_model("dinov2"), make_processor("dinov2"))]
    found = layerwise.pick(models, pairs=IMAGE_PAIRS)
    assert len(found.rows) == 2 and found.judged_on.endswith("images of yours") and "8 images" in repr(found)

"""export: plain sentence-transformers gives the measured vectors, or nothing is written."""

import json
import shlex
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from families import DEPTH, FAMILIES, WIDTH, make_model, make_tokenizer
from matrices import normal
from scipy.stats import spearmanr
from tokenizers import pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import Qwen2Tokenizer

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import ExportError, InputError
from layerwise.core.recipe import Recipe
from layerwise.maps.linear import concatenate_maps, fit_map, fit_maps
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.accumulators.second_moment import moments_of_rows as moments
from layerwise.models.load import build_network
from layerwise.models.opening import open_network
from layerwise.models.readouts import baseline_recipe
from layerwise.runs.exported import time_words
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.export.backends.sentence_transformers import modules
from layerwise.verbs.export.fitting import fit_recipe
from layerwise.verbs.pick.result import Pick

st = pytest.importorskip("sentence_transformers")
TEXTS = ["w1 w2 w3 w4 w5", "w7", "w9 w10 w11 w12 w13 w14 w15 w16", "w3 w3 w3"]
STORIES = ["Once upon a time there was a small cat.", "Yes.", "The sun was warm, and Lily went out to play with Tom."]
LATE = ("mamba", "mamba2")


def fresh(family):
    """A model and a tokenizer whose class any auto class finds again."""
    model = make_model(family)
    if family == "qwen2":  # its tokenizer class reads bytes, not the words of these tests
        vocabulary = {sign: i for i, sign in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"])}
        model.resize_token_embeddings(len(vocabulary))
        return build_network(model, Qwen2Tokenizer(vocab=vocabulary, merges=[]), family)
    return build_network(model, make_tokenizer(), family)


def plain(folder, texts=TEXTS):
    """What someone without layerwise gets."""
    return st.SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)


def measured(network, layer, norm="raw"):
    return np.stack(layerwise.embed(network, TEXTS, layers=str(layer), norm=norm)[f"layer_{layer}"])


PLACES = [("raw", 0), ("raw", 1), ("raw", 2), ("raw", DEPTH), ("normed", 1), ("normed", DEPTH)]
ALL_CASES = [(mode, *place) for mode in ("portable", "compact") for place in PLACES]
CASES = [("portable", "normed", DEPTH), ("compact", "raw", 2)]
EXPORTED = sorted(set(FAMILIES) - {"t5"})
IN_ALL_CASES = ("bert", "llama")  # an encoder and a decoder
OTHERS_LATER = [name if name in IN_ALL_CASES else pytest.param(name, marks=pytest.mark.long) for name in EXPORTED]


@pytest.mark.parametrize("family", EXPORTED)
def test_every_family_exports_with_no_difference_or_is_refused_with_the_reason(family, tmp_path):
    export_cases(family, CASES, tmp_path)


@pytest.mark.parametrize("family", OTHERS_LATER)
def test_every_layer_and_mode_is_exported_or_refused_with_the_reason(family, tmp_path):
    export_cases(family, [case for case in ALL_CASES if case not in CASES], tmp_path)


def export_cases(family, cases, tmp_path):
    for mode, norm, layer in cases:
        network = fresh(family)
        if norm == "normed" and network.structure.final_norm is None:
            continue
        out = tmp_path / f"{mode}-{norm}-{layer}"
        options = {"norm": norm, "mode": mode, "texts": TEXTS}
        if refused(family, mode, norm, layer):
            with pytest.raises(ExportError, match="cannot be exported"):
                layerwise.export(network, layer, out, **options)
            assert not list(tmp_path.glob(f"*{out.name}*")), "nothing is left behind"
            continue
        layerwise.export(network, layer, out, **options)
        assert np.abs(plain(out) - measured(network, layer, norm)).max() == 0, (mode, norm, layer)


@pytest.mark.parametrize("family", OTHERS_LATER)
def test_every_family_exports_with_a_transform(family, word_texts, tmp_path):
    for norm, layer in [("raw", 1), ("normed", DEPTH)]:
        network = fresh(family)
        norm = norm if network.structure.final_norm is not None else "raw"
        out = tmp_path / norm / str(layer)
        layerwise.export(network, layer, out, norm=norm, transform="remove_top:2", fit=word_texts, texts=TEXTS)
        fitted = layerwise.embed(network, word_texts, layers=str(layer), norm=norm)[f"layer_{layer}"]
        rows = torch.from_numpy(measured(network, layer, norm))
        expected = fit_map("remove_top:2", *moments(torch.from_numpy(np.stack(fitted))))(rows).numpy()
        assert np.abs(plain(out) - expected).max() <= 1e-6 * float(rows.abs().max()), (norm, layer)


def beside(network, texts, fit, layer, norm="raw", **options):
    """remove_top:2 of a layer and whitened token embeddings, by plain NumPy: centred, mapped, of the same length."""
    blocks = []
    mean_pooled = options | {"pooling": "mean"}  # token embeddings are, whatever the pooling of the layer
    for number, how, word, reading in [(layer, norm, "remove_top:2", options), (0, "raw", "whiten", mean_pooled)]:
        known, asked = (
            np.stack(layerwise.embed(network, given, layers=str(number), norm=how, **reading)[f"layer_{number}"])
            for given in (fit, texts)
        )
        mean = known.mean(axis=0, dtype=np.float64)
        values, vectors = np.linalg.eigh((known - mean).T @ (known - mean) / len(known))
        top = vectors[:, -2:]
        shrunk = 0.9 * values + 0.1 * values.mean()
        weight = np.eye(WIDTH) - top @ top.T if word == "remove_top:2" else vectors / np.sqrt(shrunk) @ vectors.T
        length = np.sqrt((((known - mean) @ weight.T) ** 2).sum(axis=1).mean())
        blocks.append((asked - mean) @ weight.T / length * np.sqrt(WIDTH / 2))
    return np.concatenate(blocks, axis=1)


@pytest.mark.parametrize("family", OTHERS_LATER)
def test_every_family_exports_with_token_embeddings_beside_a_layer(family, word_texts, tmp_path):
    for mode, norm, layer in [("compact", "raw", 2), ("portable", "normed", DEPTH)]:
        network = fresh(family)
        norm = norm if network.structure.final_norm is not None else "raw"
        options = {"norm": norm, "transform": "remove_top:2+static", "fit": word_texts, "mode": mode, "texts": TEXTS}
        out = tmp_path / f"{mode}-{layer}"
        if family in LATE or refused(family, mode, norm, layer):
            with pytest.raises(ExportError, match="cannot be exported"):
                layerwise.export(network, layer, out, **options)
            continue
        layerwise.export(network, layer, out, **options)
        expected = beside(network, TEXTS, word_texts, layer, norm)
        found = plain(out)
        assert found.shape == (len(TEXTS), 2 * WIDTH)
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max(), (mode, norm, layer)


@pytest.mark.parametrize("options", [{"pooling": "last"}, {"pooling": "max"}, {"tokens": "no_first"}])
def test_token_embeddings_beside_a_layer_have_its_tokens_and_are_mean_pooled(word_texts, tmp_path, options):
    network = fresh("bert")
    network.tokenizer.backend_tokenizer.post_processor = TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    layerwise.export(network, 2, tmp_path / "m", transform="remove_top:2+static", fit=word_texts, **options)
    expected = beside(network, TEXTS, word_texts, 2, **options)
    assert np.abs(plain(tmp_path / "m") - expected).max() <= 1e-4 * np.abs(expected).max()


def test_token_embeddings_beside_a_layer_are_refused_where_they_cannot_stand(tiny_llama, word_texts, tmp_path):
    with pytest.raises(ExportError, match="mean, last or max"):
        layerwise.export(tiny_llama, 1, tmp_path / "m", pooling="first", transform="center+static", fit=word_texts)
    with pytest.raises(InputError, match=r"none\+static"):
        layerwise.export(tiny_llama, 1, tmp_path / "m", transform="none+static", fit=word_texts)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("transform", ["remove_top:2", "remove_top:2+static"])
def test_a_broken_map_is_noticed_however_large_the_rows_are(word_texts, tmp_path, monkeypatch, transform):
    """Rows of a deep layer a thousand times larger than token embeddings must not excuse a wrong result."""
    network = fresh("llama")
    with torch.no_grad():
        network.module.layers[0].mlp.down_proj.weight.mul_(1e4)
    good = modules.dense_module

    def broken(linear, *args, **options):
        found = good(linear, *args, **options)
        if len(linear.weight) > WIDTH or transform == "remove_top:2":
            torch.nn.init.zeros_(found.linear.weight)
        return found

    monkeypatch.setattr(modules, "dense_module", broken)
    with pytest.raises(ExportError, match="differs from layer 2"):
        layerwise.export(network, 2, tmp_path / "m", transform=transform, fit=word_texts)
    monkeypatch.undo()
    layerwise.export(network, 2, tmp_path / "m", transform=transform, fit=word_texts)


def test_parts_of_a_recipe_have_the_same_length():
    other = normal(200, 7, seed=1) * 50 - 9
    maps = fit_maps([("remove_top:2", moments(ROWS)), ("whiten", moments(other))])
    both = concatenate_maps(maps)(torch.cat([ROWS, other], dim=1))
    assert both.mean(dim=0).abs().max() < 1e-9
    one, two = (part.square().sum(dim=1).mean() for part in both.split(7, dim=1))
    assert float(one) == pytest.approx(3.5) and float(two) == pytest.approx(3.5)
    (alone,) = fit_maps([("whiten", moments(ROWS))])
    assert torch.equal(alone.weight, fit_map("whiten", *moments(ROWS)).weight)


def test_one_stack_of_an_encoder_decoder_is_refused_with_the_reason(tmp_path):
    network = build_network(make_model("t5"), make_tokenizer(), "t5", part="encoder")
    with pytest.raises(ExportError, match="T5Stack is part of T5Model"):
        layerwise.export(network, 1, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def refused(family, mode, norm, layer):
    """Mamba's hidden_states lack the embeddings; Falcon ignores the flag that takes the norm off its last state."""
    if family in LATE:
        return norm == "raw" and layer == 0
    return family == "falcon" and norm == "raw" and layer > 0 and (mode == "compact" or layer == DEPTH)


@pytest.mark.parametrize("transform", ["center", "zscore", "remove_top:2", "whiten", "whiten:0.2:5"])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_transform_travels_as_an_ordinary_dense_module(tiny_llama, word_texts, tmp_path, transform, normalize):
    out = tmp_path / "model"
    layerwise.export(tiny_llama, 2, out, transform=transform, fit=word_texts, normalize=normalize)
    rows = torch.from_numpy(np.stack(layerwise.embed(tiny_llama, word_texts, layers="2").layer_2)).double()
    expected = fit_map(transform, *moments(rows))(rows)
    expected = torch.nn.functional.normalize(expected, dim=-1) if normalize else expected
    got = plain(out, word_texts)
    assert np.abs(got - expected.numpy()).max() <= 1e-5 * np.abs(expected.numpy()).max()
    assert [m["type"].rpartition(".")[2] for m in json.loads((out / "modules.json").read_text())][2] == "Dense"


@pytest.mark.parametrize("pooling", ["mean", "last", "first", "max"])
def test_poolings_travel(tiny_llama, tmp_path, pooling):
    layerwise.export(tiny_llama, 1, tmp_path / "m", pooling=pooling)
    expected = np.stack(layerwise.embed(tiny_llama, TEXTS, layers="1", pooling=pooling).layer_1)
    assert plain(tmp_path / "m") == pytest.approx(expected, abs=1e-6)


def test_the_certificate_and_the_card_say_what_was_proved(tiny_llama, tmp_path):
    layerwise.export(tiny_llama, "50%", tmp_path / "m", mode="compact", why="a test")
    proof = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert proof["max_difference"] < 1e-6 and proof["recipe"]["layer"] == 1 and proof["chosen_by"] == "a test"
    assert proof["parameters"]["after"] < proof["parameters"]["before"]
    assert proof["model"]["fingerprint"] and [found["tokens"] for found in proof["encoding_times"]] == [3, 20, 64]
    assert all(0 < found["low"] <= found["ratio"] <= found["high"] for found in proof["encoding_times"])
    card = (tmp_path / "m" / "README.md").read_text()
    assert f"Time to encode, measured on one machine: {time_words(proof['encoding_times'])}." in card
    assert "transformers >= 5.18" in card and "SentenceTransformer(" in card
    rights = {stat.S_IMODE(path.stat().st_mode) & 0o044 for path in (tmp_path / "m").rglob("*")}
    assert rights == {0o044}, "a service of another user can read it"
    weights = json.loads((tmp_path / "m" / "config.json").read_text())
    assert weights["num_hidden_layers"] == 1


def test_upper_blocks_are_not_written_and_the_original_stays_whole(tmp_path):
    network = fresh("llama")
    before = network.fingerprint()
    layerwise.export(network, 1, tmp_path / "m")
    assert network.fingerprint() == before and network.module.config.num_hidden_layers == DEPTH
    from safetensors import safe_open

    with safe_open(tmp_path / "m" / "model.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "layers.2" in name]  # noqa: SIM118


def test_a_chat_template_does_not_travel(tmp_path):
    network = fresh("llama")
    network.tokenizer.chat_template = "{{ 'w1 ' + messages[0]['content'] }}"
    layerwise.export(network, 1, tmp_path / "m")
    record = json.loads((tmp_path / "m" / "layerwise.json").read_text(encoding="utf-8"))
    assert network.tokenizer.chat_template, "the original keeps its own"
    said = "read without its chat template; SentenceTransformer(MODEL) wraps texts in it"
    assert said in record["agreement"]["note"] and said in (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert plain(tmp_path / "m") == pytest.approx(measured(network, 1), abs=1e-6)


def test_a_failed_parity_leaves_nothing_behind(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.export.certificate.RELATIVE_TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="it was not kept"):
        layerwise.export(tiny_llama, 1, tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_taken_folder_is_refused(tiny_llama, tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="already exists"):
        layerwise.export(tiny_llama, 1, tmp_path / "taken")


def test_a_full_disk_leaves_nothing_behind(tiny_llama, small_disk):
    with pytest.raises(InputError, match="is full; nothing was saved"):
        layerwise.export(tiny_llama, DEPTH, small_disk / "m")
    assert not list(small_disk.iterdir())


def test_a_read_only_target_is_a_clear_error(tiny_llama, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(InputError, match="Read-only file system"):
        layerwise.export(tiny_llama, 1, small_disk / "m")


def test_what_cannot_be_expressed_is_refused(tiny_bert, tiny_llama, tmp_path):
    with pytest.raises(InputError, match="needs a model with a final norm"):
        layerwise.export(tiny_bert, 2, tmp_path / "m", norm="normed")
    with pytest.raises(InputError, match="--fit FILE"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", transform="center")
    with pytest.raises(InputError, match="remove_top:K"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", transform="remove_top:x", fit=TEXTS)
    with pytest.raises(InputError, match="portable, compact"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", mode="small")


def test_the_command_line_prints_a_few_lines_or_the_whole_certificate(tiny_llama, tmp_path, capsys):
    pd.DataFrame({"body": TEXTS}).to_csv(tmp_path / "t.csv", index=False)
    mapped = ["--transform", "center", "--fit", str(tmp_path / "t.csv"), "--texts", str(tmp_path / "t.csv")]
    for name, more in {"lines": [], "json": ["--json"]}.items():
        args = ["--layer", "2", "--out", str(tmp_path / name), *mapped, "--column", "body", *more]
        assert main(["export", tiny_llama, *args]) == 0
        printed = capsys.readouterr()
        for step in (
            "loading",
            "fitting the map center",
            "saving layer 2",
            "checking",
            "comparing with llama on 4 texts",
        ):
            assert step in printed.err, step
        if name == "json":
            record = json.loads(printed.out)
            assert record == json.loads((tmp_path / name / "layerwise.json").read_text())
            assert record["recipe"]["transform"] == "center" and record["agreement"]["texts"] == 4
    layerwise.export(tiny_llama, 2, tmp_path / "quiet", texts=TEXTS)
    assert "comparing" not in capsys.readouterr().err, "the library is quiet"


def test_the_printed_lines_say_what_is_faithful_to_what_and_fit_80_columns(tiny_llama, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", tiny_llama, "--layer", "1", "--out", "small"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert len(lines) <= 8 and max(map(len, lines)) <= 80
    joined = " ".join(line.strip() for line in lines)
    for part in (
        "small: layer 1 of llama, 2 of 3 blocks, ",
        " parameters faithful to layer 1 of llama: largest difference",
        "agreement with llama as shipped on 120 demo texts: mean cosine",
        "of the 10 nearest neighbours shared",
        "of the whole model's on short texts (3 tokens), ",
        "quality on a task, compared with llama: not measured; to measure it:",
    ):
        assert part in joined, part


def test_the_command_that_export_prints_scores_the_folder(tiny_llama, tmp_path, capsys, monkeypatch):
    """With a task of one's own in place of the one that would have to be downloaded."""
    monkeypatch.chdir(tmp_path)
    pairs = [(a, b, (i * 7 + j * 3) % 5) for i, a in enumerate(TEXTS) for j, b in enumerate(TEXTS) if i < j]
    write_task(tmp_path / "root", "Mine", "STS", pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]))
    assert main(["export", tiny_llama, "--layer", "1", "--out", "my model", "--mode", "compact"]) == 0
    program, *words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert program == "layerwise"
    words[words.index("--tasks") + 1] = "Mine"
    assert main([*words, "--data-root", "root", "--workers", "0"]) == 0
    (row,) = layerwise.LayerTable.load(words[words.index("--out") + 1])
    vectors = dict(zip(TEXTS, plain("my model"), strict=True))
    cosines = [
        float(vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])) for a, b, _ in pairs
    ]
    assert row.value == pytest.approx(100 * spearmanr(cosines, [s for *_, s in pairs]).statistic, abs=0.01)


def test_the_card_says_how_to_use_it_what_was_checked_and_what_was_not(tiny_llama, tmp_path):
    layerwise.export(tiny_llama, 1, tmp_path / "m", texts=TEXTS)
    headings = [line for line in (tmp_path / "m" / "README.md").read_text().splitlines() if line.startswith("#")]
    assert headings == [
        "# Layer 1 of llama",
        "## How to use",
        "## What it is",
        "## Where it can be served",
        "## What was checked",
        "## What was not measured",
    ]
    card = (tmp_path / "m" / "README.md").read_text()
    assert "Faithful to layer 1 of llama" in card and "Agreement with llama as shipped on 4 texts" in card
    assert "they do not show that layer 1 is as good as the whole model" in card


def picked(network, recipe, fitted=None):
    """An answer of pick for that network."""
    last = baseline_recipe(network)
    return Pick(network.identity(), recipe or last, last, "by hand", ("a test",), fitted=fitted)


def test_a_pick_that_keeps_the_last_layer_is_not_exported(tiny_llama, tmp_path, capsys):
    network = open_network(tiny_llama)
    kept = picked(network, None)
    with pytest.raises(InputError, match="pick recommends keeping the last layer: an export would be a full copy of"):
        layerwise.export(network, kept, tmp_path / "m")
    kept.save(tmp_path / "run")
    assert main(["export", tiny_llama, "--layer", f"{tmp_path / 'run'}:auto", "--out", str(tmp_path / "m")]) == 2
    message = capsys.readouterr().err
    assert "--layer last" in message and f"layerwise pick {tiny_llama} --prefer fast" in message
    assert not (tmp_path / "m").exists()
    assert main(["export", tiny_llama, "--layer", "last", "--out", str(tmp_path / "m")]) == 0
    assert "next:" not in capsys.readouterr().out, "a copy has the quality of the original"


def test_texts_to_fit_on_that_have_no_effect_are_an_error(tiny_llama, tmp_path):
    with pytest.raises(InputError, match="there is no linear map to fit: add one, such as --transform"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", fit=TEXTS)
    with pytest.raises(InputError, match="the recipe has no linear map"):
        layerwise.export(tiny_llama, Recipe(2), tmp_path / "m", fit=TEXTS)
    assert not list(tmp_path.iterdir())


def test_the_map_that_a_pick_brings_is_used_and_that_is_said(tiny_llama, word_texts, tmp_path, capsys):
    network = open_network(tiny_llama)
    recipe = Recipe(2, transform="center", max_length=16)
    fitted = fit_recipe(network, recipe, word_texts, lambda recipe: None)
    picked(network, recipe, fitted).save(tmp_path / "run")
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    args = ["--layer", f"{tmp_path / 'run'}:auto", "--fit", str(tmp_path / "t.txt"), "--out", str(tmp_path / "m")]
    assert main(["export", tiny_llama, *args]) == 0
    assert "layerwise: the map saved with the pick is used; --fit is not needed" in capsys.readouterr().err
    record = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert record["fitted_on"]["count"] == len(word_texts)
    with pytest.warns(UserWarning, match="pick chose layer 1 without a linear map; --fit is not needed"):
        layerwise.export(network, picked(network, Recipe(1)), tmp_path / "n", fit=TEXTS, texts=TEXTS)


def test_pick_exports_as_the_two_verbs_do(reading_llama, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "layerwise.verbs.pick.one_model.pick_recipe", lambda network, *a, **k: picked(network, Recipe(2))
    )
    layerwise.pick(reading_llama, export=tmp_path / "m")
    made = st.SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert made.encode(TEXTS) == pytest.approx(measured(open_network(reading_llama), 2), abs=1e-6)
    assert json.loads((tmp_path / "m" / "layerwise.json").read_text())["chosen_by"] == "by hand: a test"
    monkeypatch.setattr("layerwise.verbs.pick.one_model.pick_recipe", lambda network, *a, **k: picked(network, None))
    with pytest.warns(UserWarning, match="should be kept, so nothing was exported"):
        assert layerwise.pick(reading_llama, export=tmp_path / "n").keep_last
    assert not (tmp_path / "n").exists()


def test_the_card_carries_licence_and_scores(tiny_llama, tmp_path):
    from huggingface_hub import ModelCard

    network = open_network(tiny_llama)
    made = {"data": "words: for people", "max_length": network.default_length}
    row = LayerScore("m", 2, 0.5, "raw", "all", "mean", "-", "STS12", 61.5, 10, **made)
    (Path(tiny_llama) / "README.md").write_text("---\nlicense: apache-2.0\n---\n# base")
    task = {"type": "STS", "score": "cosine_spearman", "examples": 9, "of": 9, "source": "local"}
    record = {"kind": "eval", "model": network.identity().to_record()}
    for name, tasks in {"recorded": {"STS12": task}, "bare": {}}.items():
        scores = LayerTable((row, replace(row, layer=1)), record | {"tasks": tasks})
        layerwise.export(tiny_llama, 2, tmp_path / name, scores=scores)
        data = ModelCard.load(tmp_path / name / "README.md").data
        assert data.license == "apache-2.0"
        (found,) = data.eval_results
        assert (found.dataset_name, found.metric_value) == ("STS12", 61.5)
        expected = ("STS", "cosine_spearman") if tasks else ("STS12", "main_score")
        assert (found.task_name, found.metric_type) == expected, "from the record, never from words for people"
    (Path(tiny_llama) / "README.md").unlink()


def test_the_folder_is_a_plain_transformers_model_too(tiny_llama, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    layerwise.export(tiny_llama, 1, tmp_path / "m")
    module, tokenizer = AutoModel.from_pretrained(tmp_path / "m"), AutoTokenizer.from_pretrained(tmp_path / "m")
    with torch.no_grad():
        states = module(**tokenizer(TEXTS[0], return_tensors="pt"), output_hidden_states=True).hidden_states
    assert states[1][0].mean(dim=0).numpy() == pytest.approx(plain(tmp_path / "m")[0], abs=1e-6)


# ---- tokens left out


def test_an_opening_token_is_left_out_exactly(real_model, tmp_path):
    """stories260k's tokenizer opens every text with <s>."""
    folder = real_model("stories260k")
    layerwise.export(folder, 3, tmp_path / "m", tokens="no_first")
    expected = np.stack(layerwise.embed(folder, STORIES, layers="3", tokens="no_first").layer_3)
    assert np.abs(plain(tmp_path / "m", STORIES) - expected).max() <= 1e-6 * np.abs(expected).max()
    assert np.abs(expected - np.stack(layerwise.embed(folder, STORIES, layers="3").layer_3)).max() > 0.01


def test_special_tokens_are_left_out_exactly(real_model, tmp_path):
    folder = real_model("all-minilm-l6-v2")
    texts = [*STORIES, "an unknown sign: \U00013000"]  # [UNK] is a word of the text
    layerwise.export(folder, 3, tmp_path / "m", tokens="no_special", max_length=64)
    expected = np.stack(layerwise.embed(folder, texts, layers="3", tokens="no_special", max_length=64).layer_3)
    assert np.abs(plain(tmp_path / "m", texts) - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("tokens", ["all", "no_first", "no_special"])
def test_texts_that_contain_special_tokens_get_the_vectors_of_embed(tmp_path, tokens):
    """Also texts of excluded tokens alone, whose vector is zero."""
    from families import adding_tokenizer

    model, tokenizer = make_model("llama"), adding_tokenizer()
    tokenizer.pad_token = "</s>"
    texts = ["w1 </s> w2 <pad>", "<s> w3", "</s> w1 <unk>", "</s> <s>", "x", "w1 w2 w3 w4"]
    layerwise.export((model, tokenizer), 1, tmp_path / "m", tokens=tokens)
    expected = np.stack(layerwise.embed((model, tokenizer), texts, layers="1", tokens=tokens).layer_1)
    assert plain(tmp_path / "m", texts) == pytest.approx(expected, abs=1e-6)
    zero = {"all": [], "no_first": [], "no_special": [3, 4]}[tokens]
    assert np.flatnonzero(~expected.any(axis=1)).tolist() == zero


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_with_an_excluded_prompt_an_empty_text_has_the_vector_of_embed(tmp_path, tiny_llama, pooling):
    layerwise.export(tiny_llama, 1, tmp_path / "m", tokens="no_first", template="w1 {text}", pooling=pooling)
    options = {"layers": "1", "tokens": "no_first", "pooling": pooling}
    expected = np.stack(layerwise.embed(tiny_llama, ["w1", "w1 w2 w3"], **options).layer_1)
    assert plain(tmp_path / "m", ["", "w2 w3"]) == pytest.approx(expected, abs=1e-6) and not expected[0].any()


def test_words_that_differ_from_a_left_out_token_in_case_only_keep_their_weight():
    """The module of sentence-transformers looks words up in lower case too."""
    from layerwise.verbs.export.backends.sentence_transformers.excluded_tokens import weighting_module

    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<S>", "other"])
    weights = weighting_module(tokenizer, [1]).emb_layer.weight[:, 0]
    assert (weights == 0).nonzero().flatten().tolist() == [1]


@pytest.mark.long
def test_without_an_opening_token_a_prompt_of_one_token_takes_its_place(real_model, tmp_path):
    """SmolLM2's tokenizer adds nothing; a line break takes the sink's place and is left out."""
    folder = real_model("smollm2-135m")
    with pytest.raises(InputError, match="one token before the text"):
        layerwise.export(folder, 3, tmp_path / "m", tokens="no_first")
    layerwise.export(folder, 3, tmp_path / "m", tokens="no_first", template="\n{text}", max_length=64)
    prompted = ["\n" + text for text in STORIES]
    expected = np.stack(layerwise.embed(folder, prompted, layers="3", tokens="no_first", max_length=64).layer_3)
    assert np.abs(plain(tmp_path / "m", STORIES) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_tokens_that_cannot_be_left_out_are_refused_by_name(real_model, tiny_llama, tmp_path):
    with pytest.raises(InputError, match="cannot decide by norms"):
        layerwise.export(real_model("stories260k"), 3, tmp_path / "m", tokens="no_sinks")
    with pytest.raises(InputError, match="pooling mean only"):
        layerwise.export(real_model("stories260k"), 3, tmp_path / "m", tokens="no_first", pooling="max")
    with pytest.raises(InputError, match="pooling mean or last only"):  # an empty text would be -inf
        layerwise.export(tiny_llama, 1, tmp_path / "m", tokens="no_first", template="w1 {text}", pooling="max")
    assert not list(tmp_path.iterdir())


# ---- transforms and recipes


@pytest.mark.parametrize("transform", ["whiten", "remove_top:2"])
def test_a_map_can_be_fitted_from_a_scan_without_another_pass(tiny_llama, word_texts, tmp_path, transform):
    layerwise.scan(tiny_llama, word_texts, metrics="dataset_entropy", out=tmp_path / "scan")
    layerwise.export(tiny_llama, 2, tmp_path / "a", transform=transform, fit=str(tmp_path / "scan"))
    layerwise.export(tiny_llama, 2, tmp_path / "b", transform=transform, fit=word_texts)
    assert plain(tmp_path / "a") == pytest.approx(plain(tmp_path / "b"), abs=1e-5)
    with pytest.raises(InputError, match="kept no second moments of layer 2"):
        layerwise.export(tiny_llama, 2, tmp_path / "c", transform="center", pooling="max", fit=tmp_path / "scan")


ROWS = normal(200, 7) * torch.arange(1, 8) + 3


def test_transforms_do_what_they_say():
    center = fit_map("center", *moments(ROWS))(ROWS)
    assert center.mean(dim=0).abs().max() < 1e-9
    zscore = fit_map("zscore", *moments(ROWS))(ROWS)
    assert torch.allclose(zscore.std(dim=0, correction=0), torch.ones(7, dtype=torch.float64))
    white = fit_map("whiten:0", *moments(ROWS))(ROWS)
    assert torch.allclose(white.mT @ white / 200, torch.eye(7, dtype=torch.float64), atol=1e-9)
    removed = fit_map("remove_top:2", *moments(ROWS))(ROWS)
    assert int(torch.linalg.matrix_rank(removed)) == 5
    assert torch.equal(fit_map("none", *moments(ROWS))(ROWS), ROWS)
    few = fit_map("whiten:0:3", *moments(ROWS))(ROWS)
    assert few.shape == (200, 3) and torch.allclose(few.mT @ few / 200, torch.eye(3, dtype=torch.float64), atol=1e-9)


def test_principal_directions_are_scikit_learns():
    from sklearn.decomposition import PCA

    pca = PCA(2).fit(ROWS.numpy())
    centered = ROWS.numpy() - pca.mean_
    expected = centered - centered @ pca.components_.T @ pca.components_
    assert fit_map("remove_top:2", *moments(ROWS))(ROWS).numpy() == pytest.approx(expected, abs=1e-9)


def test_a_transform_merges_over_shards():
    one, two = SecondMoment(7), SecondMoment(7)
    one.update(ROWS[:90])
    two.update(ROWS[90:])
    one.merge(two)
    apart, whole = fit_map("whiten", *one.moments()), fit_map("whiten", *moments(ROWS))
    assert torch.allclose(apart.weight, whole.weight, atol=1e-10)


def test_a_recipe_survives_as_json(tmp_path):
    recipe = Recipe(9, transform="remove_top:3", max_length=128)
    (tmp_path / "r.json").write_text(recipe.to_json())
    assert Recipe.load(tmp_path / "r.json") == recipe
    assert (recipe.readout.layer, recipe.readout.pooling) == (9, "mean")
    with pytest.raises(InputError, match="the fields are layer, norm"):
        Recipe.from_json('{"layr": 3}')


def test_a_real_model_exports_with_no_difference(real_model, tmp_path):
    """MiniLM at layer 3, as smaller and faster as its depth promises."""
    layerwise.export(real_model("all-minilm-l6-v2"), 3, tmp_path / "m", mode="compact", max_length=256)
    proof = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert proof["max_difference"] <= 1e-6 * proof["largest_entry"]
    assert proof["parameters"]["after"] < 0.8 * proof["parameters"]["before"]

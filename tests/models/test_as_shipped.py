"""The word `last` means the model as its authors meant it: its pooling, map, normalisation and prompt."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from embedders import ship
from families import make_config, make_tokenizer
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForCausalLM

import layerwise
from layerwise.core.errors import InputError, ModelError
from layerwise.models.doctor import run_checks
from layerwise.models.opening import open_network
from layerwise.models.readouts import baseline_recipe, last_recipe
from layerwise.verbs.eval.data_root import write_task

TEXTS = ["w1 w2 w3", "w4 w5", "w6", "w7 w8 w9 w10 w11 w12 w13", "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11"]
REAL_TEXTS = ["A small dog sleeps.", "The train to the coast leaves at nine.", "Short", "  space before and after "]


def test_a_module_that_cannot_be_loaded_is_named(tmp_path):
    folder = ship(tmp_path / "m", "bert", "mean", dense=8)
    (config,) = Path(folder).glob("*_Dense/config.json")
    words = json.loads(config.read_text()) | {"activation_function": "torch.os.system"}
    config.write_text(json.dumps(words))
    with pytest.raises(ModelError, match="cannot load 2_Dense of .*ModuleNotFoundError"):
        layerwise.embed(folder, ["w1 w2"])


SHIPPED = {
    "cls and normalize": ("bert", "cls", {"normalize": True}),
    "last token with a prompt": ("llama", "lasttoken", {"prompt": "w90 w91 "}),
    "mean with a dense": ("bert", "mean", {"dense": 8}),
    "mean without its prompt's tokens": ("llama", "mean", {"prompt": "w90 w91 ", "include_prompt": False}),
    "two poolings, dense, normalize": ("llama", ("mean", "max"), {"dense": 8, "normalize": True}),
    "weighted mean": ("gpt_neox", "weightedmean", {}),
}


@pytest.fixture(params=SHIPPED, ids=lambda name: name.replace(" ", "_"))
def shipped(request, tmp_path):
    family, pooling, options = SHIPPED[request.param]
    return ship(tmp_path / "model", family, pooling, **options)


def close(found, expected):
    found, expected = np.stack(list(found)), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


def test_last_is_what_sentence_transformers_gives(shipped):
    frame = layerwise.embed(shipped, TEXTS, layers="last")
    assert list(frame.columns) == ["id", "text", "last"] and list(frame.text) == TEXTS
    close(frame["last"], SentenceTransformer(shipped, device="cpu").encode(TEXTS))


def test_last_of_an_object_is_what_the_object_gives(shipped):
    model = SentenceTransformer(shipped, device="cpu")
    close(layerwise.embed(model, TEXTS)["last"], model.encode(TEXTS))


def test_an_exported_last_is_the_original(shipped, tmp_path):
    layerwise.export(shipped, "last", tmp_path / "out")
    original, copy = (SentenceTransformer(str(path), device="cpu") for path in (shipped, tmp_path / "out"))
    close(copy.encode(TEXTS), original.encode(TEXTS))
    assert copy.prompts == original.prompts and copy.default_prompt_name == original.default_prompt_name
    record = json.loads((tmp_path / "out" / "layerwise.json").read_text())
    assert record["difference_from_original"] <= 1e-6 * record["largest_entry"]


def test_one_pass_gives_last_beside_the_layers(shipped):
    network = open_network(shipped)
    layers = [1, 3] if network.shipped.pooling_choice else []
    frame = layerwise.embed(network, TEXTS, layers=[*layers, "last"])
    close(frame["last"], SentenceTransformer(shipped, device="cpu").encode(TEXTS))


def test_a_layer_number_is_pooled_as_the_model_pools(tmp_path):
    folder = ship(tmp_path / "model", "bert", "cls", normalize=True)
    frame = layerwise.embed(folder, TEXTS, layers="2,last")
    first, mean = (layerwise.embed(folder, TEXTS, layers=2, pooling=word)["layer_2"] for word in ("first", "mean"))
    close(frame["layer_2"], np.stack(list(first)))
    assert np.abs(np.stack(list(first)) - np.stack(list(mean))).max() > 0.01


def test_a_pooling_that_no_word_says_is_asked_for(tmp_path):
    folder = ship(tmp_path / "model", "gpt_neox", "weightedmean")
    with pytest.raises(InputError, match="weightedmean.*--pooling mean"):
        layerwise.embed(folder, TEXTS, layers=2)
    assert "layer_2" in layerwise.embed(folder, TEXTS, layers=2, pooling="mean")


def test_last_is_not_read_in_another_way(tiny_llama):
    with pytest.raises(InputError, match="use its number: 3"):
        layerwise.embed(tiny_llama, TEXTS, layers="last", pooling="max")


def test_a_plain_decoder_is_mean_pooled_behind_its_norm(tiny_llama):
    frame = layerwise.embed(tiny_llama, TEXTS)
    close(frame["last"], SentenceTransformer(tiny_llama, device="cpu").encode(TEXTS))
    close(layerwise.embed(tiny_llama, TEXTS, layers=3, norm="normed")["layer_3"], np.stack(list(frame["last"])))


def test_a_causal_language_model_is_pooled_by_its_last_token(tmp_path):
    """As sentence-transformers does where a folder ships no pooling; pick holds its choice against the mean."""
    model = AutoModelForCausalLM.from_config(make_config("llama"))
    model.save_pretrained(tmp_path / "lm")
    make_tokenizer().save_pretrained(tmp_path / "lm")
    own = SentenceTransformer(str(tmp_path / "lm"), device="cpu").encode(TEXTS)
    close(layerwise.embed(tmp_path / "lm", TEXTS)["last"], own)
    close(layerwise.export(tmp_path / "lm", "last", tmp_path / "out").encode(TEXTS), own)
    network = open_network(tmp_path / "lm")
    assert (last_recipe(network).pooling, baseline_recipe(network).pooling) == ("last", "mean")


def test_an_exported_plain_decoder_is_the_original(tiny_llama, tmp_path):
    found = layerwise.export(tiny_llama, "last", tmp_path / "out")
    close(found.encode(TEXTS), SentenceTransformer(tiny_llama, device="cpu").encode(TEXTS))


def test_pick_keeps_the_model_as_shipped(tmp_path, word_texts):
    folder = ship(tmp_path / "model", "bert", "cls", normalize=True, reader=True)
    found = layerwise.pick(folder, word_texts, layer_only=True)
    assert found.last == last_recipe(open_network(folder)) and found.last.norm == "shipped"


def test_a_folder_that_layerwise_exported_is_read_as_it_ships(tiny_llama, tmp_path, word_texts):
    """Its transformer hands on another state than the last, so it encodes texts itself."""
    layerwise.export(tiny_llama, 2, tmp_path / "cut", transform="center", fit=word_texts)
    assert open_network(tmp_path / "cut").shipped.own_encode_reason
    expected = SentenceTransformer(str(tmp_path / "cut"), device="cpu").encode(TEXTS)
    close(layerwise.embed(tmp_path / "cut", TEXTS)["last"], expected)
    again = layerwise.export(tmp_path / "cut", "last", tmp_path / "again")
    close(again.encode(TEXTS), expected)


@pytest.mark.parametrize("name", [pytest.param("all-mpnet-base-v2", marks=pytest.mark.long), "all-minilm-l6-v2"])
def test_real_models_behave_as_their_authors_meant(name, real_model, tmp_path):
    folder = real_model(name)
    expected = SentenceTransformer(folder, device="cpu").encode(REAL_TEXTS)
    close(layerwise.embed(folder, REAL_TEXTS)["last"], expected)
    close(layerwise.export(folder, "last", tmp_path / "out").encode(REAL_TEXTS), expected)


def test_eval_scores_the_model_as_shipped(tmp_path):
    folder = ship(tmp_path / "model", "bert", "cls", normalize=True, dense=8)
    pairs = [(a, b, (i * 7 + j * 3) % 5) for i, a in enumerate(TEXTS) for j, b in enumerate(TEXTS) if i < j]
    write_task(tmp_path / "root", "Mine", "STS", pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]))
    table = layerwise.eval(folder, "all", out=tmp_path / "run", data_root=tmp_path / "root", layers="1,last")
    (row,) = table.where(norm="shipped")
    assert row.layer == 3 and row.pooling == "shipped"
    assert {r.pooling for r in table.where(layer=1)} == {"first"}
    vectors = dict(zip(TEXTS, SentenceTransformer(folder, device="cpu").encode(TEXTS), strict=True))
    cosines = [float(vectors[a] @ vectors[b]) for a, b, _ in pairs]  # they have length 1
    assert row.value == pytest.approx(100 * spearmanr(cosines, [s for *_, s in pairs]).statistic, abs=0.01)


def test_the_doctor_compares_with_the_model_itself(tmp_path):
    folder = ship(tmp_path / "model", "bert", "cls", normalize=True)
    (found,) = [f for f in run_checks(open_network(folder)) if f.subject == "shipped modules"]
    assert found.verdict == "ok"


@pytest.mark.parametrize("activation", ["os.system", "my_package.Gelu", None, 7])
@pytest.mark.parametrize("verb", [layerwise.embed, layerwise.scan])
def test_an_activation_that_sentence_transformers_replaces_is_refused(verb, activation, tmp_path):
    folder = Path(ship(tmp_path / "model", "bert", "mean", dense=8))
    (config,) = folder.glob("*_Dense/config.json")
    record = json.loads(config.read_text())
    config.write_text(json.dumps(record | {"activation_function": activation}))
    with pytest.raises(
        ModelError, match=rf"2_Dense/config.json of .* names the activation {activation!r}.* Tanh in its"
    ):
        verb(folder, TEXTS)
    config.write_text(json.dumps(record | {"activation_function": "torch.nn.modules.activation.GELU"}))
    close(layerwise.embed(folder, TEXTS)["last"], SentenceTransformer(str(folder), device="cpu").encode(TEXTS))


def test_modules_with_code_of_their_own_are_refused(tmp_path):
    folder = Path(ship(tmp_path / "model", "bert", "mean", dense=8))
    listed = json.loads((folder / "modules.json").read_text())
    listed[2]["type"] = "os.Dense"
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ModelError, match="contains custom code .os.Dense., which layerwise does not run"):
        layerwise.embed(folder, TEXTS)
    listed[2]["path"] = "../../elsewhere"
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ModelError, match="points outside its folder"):
        layerwise.embed(folder, TEXTS)

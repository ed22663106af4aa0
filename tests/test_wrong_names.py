"""Numbers that were once taken for others: each test is one way in which that happened."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from runs import eval_table, scan_table
from sentence_transformers import SentenceTransformer
from test_as_shipped import ship

import layerwise
from layerwise.api.export import recipe_scores
from layerwise.core.errors import InputError, ModelError
from layerwise.core.recipe import Recipe
from layerwise.distill.student import blocks_read, pooling_modules
from layerwise.downstream.correlate import correlations
from layerwise.downstream.run import load_earlier_table
from layerwise.models.fingerprint import weight_files_hash
from layerwise.models.head import Head
from layerwise.models.load import ModelSpec, load_network
from layerwise.models.opening import is_recorded_model, open_network
from layerwise.models.shipped import Shipped, ShippedModule, read_shipped
from layerwise.runs.identity import ModelRef
from layerwise.runs.table import LayerTable


def fitted(fit):
    model = ModelRef("m", fingerprint="of m")
    recipe = Recipe(2, transform="center", max_length=64)
    return SimpleNamespace(model=model, recipe=recipe, fitted_on=SimpleNamespace(fingerprint=fit))


def test_scores_of_a_map_that_was_fitted_on_other_texts_stay_out_of_the_card():
    table = eval_table("m")
    mapped = {"transform": "center", "max_length": 64, "fit": "one"}
    scored = LayerTable(tuple(replace(row, **mapped) for row in table), table.run)
    assert {row.layer for row in recipe_scores(scored, fitted("one"))} == {2}
    with pytest.raises(InputError, match="no score for this recipe and map"):
        recipe_scores(scored, fitted("other"))


def test_metrics_and_scores_of_different_weights_are_not_correlated():
    one = scan_table("m", depth=8, metrics=("curvature",), rows=("raw",))
    scan = LayerTable(tuple(replace(row, model_hash="files-1") for row in one), {"kind": "scan"})
    scores = LayerTable(tuple(replace(row, model_hash="files-2") for row in eval_table("m", depth=8)), {"kind": "eval"})
    with pytest.raises(InputError, match="rows belong to different models"):
        correlations(scan, scores)


def test_scores_of_half_precision_do_not_replace_those_of_single(tmp_path):
    table = eval_table("m")
    LayerTable(table.scores, {**table.run, "precision": "float32"}).save(tmp_path)
    assert load_earlier_table(tmp_path, precision="float32") is not None
    with pytest.raises(InputError, match="precision is float32 there, not float16"):
        load_earlier_table(tmp_path, precision="float16")


def test_what_a_module_behind_the_transformer_does_is_part_of_the_model(tiny_llama):
    network = load_network(ModelSpec(tiny_llama))

    def with_activation(word):
        module = SimpleNamespace(get_config_dict=lambda: {"activation": word}, state_dict=dict)
        shipped = Shipped("", (), ("mean",), True, "", None)
        return replace(network, head=Head(shipped, (module,))).fingerprint()

    assert with_activation("Tanh") == with_activation("Tanh") != with_activation("Identity")


@pytest.fixture
def recipe_folder(tiny_llama, tmp_path, word_texts):
    """An exported recipe: it pools hidden state 2, so it encodes texts itself."""
    layerwise.export(tiny_llama, 2, tmp_path / "recipe", transform="center", fit=word_texts)
    return tmp_path / "recipe"


def with_transformer_settings(folder, copy, change):
    """A copy of a model with other settings of its transformer module."""
    shutil.copytree(folder, copy)
    path = copy / "sentence_bert_config.json"
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))
    return copy


def test_two_recipes_that_differ_in_the_state_they_pool_are_two_models(recipe_folder, tmp_path):
    def pool_state_1(settings):
        settings["modality_config"]["text"]["method_output_name"] = ["hidden_states", 1]

    other = with_transformer_settings(recipe_folder, tmp_path / "other", pool_state_1)
    one, two = (layerwise.embed(folder, ["a text"])["last"][0] for folder in (recipe_folder, other))
    assert not np.allclose(one, two)
    assert open_network(recipe_folder).fingerprint() != open_network(other).fingerprint()


def test_the_maps_of_models_in_memory_that_encode_themselves_belong_to_them(recipe_folder):
    one, same, other = (SentenceTransformer(str(recipe_folder), device="cpu") for _ in range(3))
    with torch.no_grad():
        other[-1].linear.bias.add_(1)
    network = open_network(one)
    assert network.fingerprint() == open_network(same).fingerprint() != open_network(other).fingerprint()
    assert is_recorded_model(open_network(recipe_folder), network.identity())
    assert not is_recorded_model(open_network(recipe_folder), open_network(other).identity())
    with torch.no_grad():
        one[-1].linear.bias.add_(1)
    assert network.fingerprint() == open_network(other).fingerprint()


def test_weights_in_folders_that_are_not_listed_are_hashed_in_memory(recipe_folder):
    shipped = read_shipped(str(recipe_folder))
    router = ShippedModule("Router", "sentence_transformers.models.Router", "3_Router")
    assert weight_files_hash(str(recipe_folder), None, shipped, None)
    assert (
        weight_files_hash(str(recipe_folder), None, replace(shipped, modules=(*shipped.modules, router)), None) is None
    )


def test_a_model_with_settings_for_its_tokenizer_encodes_itself(tmp_path):
    """As one that reads two tokens of each text; our own pass would read all."""
    folder, texts = ship(tmp_path / "model", "bert", "mean"), ["some more words than two"]
    short = with_transformer_settings(
        folder, tmp_path / "short", lambda s: s.update(processing_kwargs={"text": {"max_length": 2}})
    )
    expected, usual = (SentenceTransformer(str(f), device="cpu").encode(texts)[0] for f in (short, folder))
    assert not np.allclose(expected, usual, atol=1e-3)
    for model in (short, SentenceTransformer(str(short), device="cpu")):
        np.testing.assert_allclose(layerwise.embed(model, texts)["last"][0], expected, atol=1e-5)
    with pytest.raises(ModelError, match="cannot be shrunk: it has settings of its own for its tokenizer"):
        pooling_modules(open_network(short))


@pytest.mark.parametrize("settings", [{"modality_config": ["text"]}, {"processing_kwargs": "text"}])
def test_damaged_settings_of_a_transformer_module_are_refused(tmp_path, settings):
    folder = with_transformer_settings(
        ship(tmp_path / "model", "bert", "mean"), tmp_path / "damaged", lambda s: s.update(settings)
    )
    with pytest.raises(ModelError, match="damaged"):
        open_network(folder)


def test_a_recipe_that_pools_a_state_it_does_not_have_is_not_shrunk(recipe_folder, tmp_path):
    def pool_state_99(settings):
        settings["modality_config"]["text"]["method_output_name"] = ["hidden_states", 99]

    network = open_network(with_transformer_settings(recipe_folder, tmp_path / "other", pool_state_99))
    with pytest.raises(ModelError, match="pools hidden state 99, but has 0 to"):
        blocks_read(network)


def test_a_model_that_encodes_itself_does_not_speak_for_one_with_an_adapter():
    shipped = Shipped("", (), ("mean",), True, "", None, own_encode_reason="it puts texts into lower case")
    head = Head(shipped, difference="its adapter")
    with pytest.raises(InputError, match="would do so without its adapter; save the merged adapter"):
        head.encode(["a text"], 64)


def test_the_active_adapter_of_an_object_is_part_of_the_model(tiny_llama):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModel, AutoTokenizer

    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model = get_peft_model(AutoModel.from_pretrained(tiny_llama), config, adapter_name="first")
    model.add_adapter("second", config)
    seen = set()
    for name in ("first", "second"):
        model.set_adapter(name)
        seen.add(open_network((model, AutoTokenizer.from_pretrained(tiny_llama))).fingerprint())
    with model.disable_adapter():
        seen.add(open_network((model, AutoTokenizer.from_pretrained(tiny_llama))).fingerprint())
    assert len(seen) == 3


def test_code_that_comes_with_a_model_is_part_of_it(tmp_path, monkeypatch):
    from layerwise.models import fingerprint

    path = tmp_path / "my_code.py"
    made = type("Mine", (__import__("torch").nn.Module,), {"__module__": "transformers_modules.mine.my_code"})()
    monkeypatch.setattr(fingerprint.inspect, "getfile", lambda cls: str(path))
    words = []
    for constant in (1, 2):
        path.write_text(f"SCALE = {json.dumps(constant)}")
        words.append(fingerprint.code_text(made))
    assert words[0] != words[1]

"""Numbers that were once taken for others: each test is one way in which that happened."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_runs import eval_table, scan_table

from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.models.head import Head
from layerwise.models.load import ModelSpec, load_network
from layerwise.models.opening import open_network
from layerwise.models.shipped import Shipped
from layerwise.runs.identity import ModelRef
from layerwise.runs.table import LayerTable
from layerwise.verbs.eval.run import load_earlier_table
from layerwise.verbs.export.api import recipe_scores
from layerwise.verbs.report.correlations import correlations


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

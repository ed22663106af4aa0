"""Fitted recipes: what pick saves is what eval scores and export writes, bit by bit, and damage is refused by name."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from matrices import normal
from snapshots import write_root

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.core.recipe import Readout, Recipe
from layerwise.core.tensors import dump_tensors, parse_tensors
from layerwise.maps.fitted import (
    RECIPE_FILE,
    RECIPE_KEY,
    FittedOn,
    FittedRecipe,
    load_recipe,
    texts_fingerprint,
)
from layerwise.maps.linear import fit_maps
from layerwise.metrics.accumulators.second_moment import moments_of_rows
from layerwise.models.opening import open_network
from layerwise.runs.identity import ModelRef
from layerwise.verbs.pick.probes import Probe
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.run import Rulebook, pick_recipe

ON = FittedOn("texts", "texts.txt", "1234", 29)


def fitted(transform="remove_top:2+static", width=7, **model):
    """A recipe fitted on random rows."""
    recipe = Recipe(3, transform=transform, template="query: {text}", max_length=64)
    maps = () if transform == "none" else fit_maps(
        [(word, moments_of_rows(normal(29, width, seed=i))) for i, (_, word) in enumerate(recipe.parts)]
    )  # fmt: skip
    fields = {"name": "org/model", "revision": "main", "fingerprint": "abcd"} | model
    return FittedRecipe(recipe, ModelRef(**fields), maps, ON if maps else None)


def test_the_readout_of_a_recipe_is_a_readout():
    recipe = Recipe(5, "normed", "no_first", "last", transform="center")
    assert recipe.readout == Readout(5, norm="normed", tokens="no_first", pooling="last")
    with pytest.raises(InputError, match="cannot have the field 'readout'"):
        Recipe.from_json('{"layer": 5, "readout": "normed"}')


@pytest.mark.parametrize("transform", ["none", "center", "whiten:0.1:5", "whiten:0.1:5+static"])
def test_a_fitted_recipe_survives_its_file_bit_by_bit(transform, tmp_path):
    before = fitted(transform)
    path = before.save(tmp_path / "new")
    for place in (path, tmp_path / "new", str(path)):
        after = FittedRecipe.load(place)
        assert after == before and (after.recipe, after.model, after.fitted_on) == (
            before.recipe, before.model, before.fitted_on)  # fmt: skip
        if before.combined_map is not None:
            assert torch.equal(after.combined_map.weight, before.combined_map.weight)
            assert torch.equal(after.combined_map.bias, before.combined_map.bias)
    assert load_recipe(tmp_path / "new") == before


def test_two_maps_of_one_recipe_are_two_fitted_recipes():
    one = fitted("center")
    assert one == fitted("center") and hash(one) == hash(fitted("center"))
    moved = replace(one, maps=(replace(one.maps[0], bias=one.maps[0].bias + 1),))
    assert (
        one != moved
        and one != fitted("center", fingerprint="other")
        and one != replace(one, recipe=replace(one.recipe, template=""))
    )
    assert one == fitted("center", name="/elsewhere/model"), "where a model lies does not decide its vectors"


def test_the_header_holds_the_template_and_the_parts():
    record = json.loads(parse_tensors(RECIPE_KEY, fitted().to_bytes())[0])
    assert record["schema_version"] == 1 and record["template"] == {"before": "query: ", "after": ""}
    assert [(part["readout"]["layer"], part["map"], part["rows"]) for part in record["parts"]] == [
        (3, "remove_top:2", [0, 7]), (0, "whiten", [7, 14])]  # fmt: skip
    assert record["fitted_on"] == asdict(ON)


def damaged(change, tensors=None):
    """The bytes of a file whose header was changed, with a checksum that fits."""
    words, weights = parse_tensors(RECIPE_KEY, fitted().to_bytes())
    record = json.loads(words)
    change(record)
    return dump_tensors(RECIPE_KEY, json.dumps(record), weights if tensors is None else tensors(weights))


def put(*path, value):
    def change(record):
        for name in path[:-1]:
            record = record[name]
        record[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("schema_version", value=2), "another version of layerwise .schema_version 2, this version reads 1"),
        (put("template", "after", value=" ="), "template and recipe do not match"),
        (put("template", "before", value="other"), "template and recipe do not match"),
        (put("parts", 1, "readout", "layer", value=1), "parts and recipe do not match"),
        (put("parts", 1, "rows", value=[7, 13]), "parts and recipe do not match"),
        (put("parts", value=[]), "parts and recipe do not match"),
        (put("extra", value=1), "unknown fields .extra. and was written by a newer layerwise"),
        (put("template", "middle", value=""), "template has unknown fields .middle."),
        (put("model", "host", value=""), "model has unknown fields .host."),
        (put("fitted_on", "kind", value="dream"), "newer layerwise: fitted_on has the unknown kind 'dream'"),
        (put("fitted_on", "count", value="many"), "fitted_on: count is damaged"),
        (put("recipe", "lens", value="raw"), "a recipe cannot have the field 'lens'"),
        (put("recipe", value=3), "recipe is damaged"),
        (lambda record: record.pop("model"), "is damaged .missing model"),
    ],
)
def test_what_a_header_must_not_say_is_refused_by_name(change, message):
    with pytest.raises(RunError, match=message):
        FittedRecipe.from_bytes(damaged(change), "folder/recipe.safetensors")


@pytest.mark.parametrize(
    "tensors",
    [
        lambda weights: {name: w for name, w in weights.items() if name != "1.bias"},
        lambda weights: weights | {"2.bias": weights["1.bias"].clone()},
        lambda weights: weights | {"1.bias": weights["1.bias"][:3]},
        lambda weights: weights | {"0.weight": weights["0.weight"].float()},
        lambda weights: {},
    ],
)
def test_weights_that_do_not_fit_the_parts_are_refused(tensors):
    with pytest.raises(RunError, match=r"f/recipe\.safetensors contains weights that do not match its recipe"):
        FittedRecipe.from_bytes(damaged(lambda record: None, tensors), "f/recipe.safetensors")


def test_damaged_bytes_are_refused_wherever_they_are():
    whole = fitted().to_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    for place in (12, whole.index(b"org/model"), length + 5, len(whole) - 1):
        broken = bytearray(whole)
        broken[place] ^= 1
        with pytest.raises(RunError, match="is not a fitted recipe, or is damaged"):
            FittedRecipe.from_bytes(bytes(broken), "f")
    for part in (b"", whole[:100], whole[:-3], b"not safetensors at all"):
        with pytest.raises(RunError, match="is not a fitted recipe, or is damaged"):
            FittedRecipe.from_bytes(part, "f")


def test_a_file_of_the_user_is_not_replaced(tmp_path):
    (tmp_path / RECIPE_FILE).write_bytes(b"mine")
    plain = Pick(ModelRef("m", fingerprint="f"), Recipe(1), Recipe(3), "rule")
    for save in (fitted().save, plain.save):
        with pytest.raises(RunError, match="was not written by layerwise"):
            save(tmp_path)
    assert (tmp_path / RECIPE_FILE).read_bytes() == b"mine" and not (tmp_path / "pick.json").exists()


def pick_of(map_of, **changes):
    return replace(Pick(map_of.model, map_of.recipe, Recipe(5), "rule", ("why",), fitted=map_of), **changes)


def test_a_saved_answer_brings_its_map_back_and_never_that_of_another(tmp_path):
    answer = pick_of(fitted())
    answer.save(tmp_path)
    assert Pick.load(tmp_path).fitted == answer.fitted
    record = json.loads((tmp_path / "pick.json").read_text())
    fitted("center").save(tmp_path)
    with pytest.raises(RunError, match="does not belong to the pick.json in the same folder"):
        Pick.load(tmp_path)
    del record["fitted"], record["checksum"]
    (tmp_path / "pick.json").write_text(json.dumps(record))
    assert Pick.load(tmp_path).fitted is None, "it names no map"
    replace(answer, fitted=None).save(tmp_path)
    assert Pick.load(tmp_path).fitted is None and not (tmp_path / RECIPE_FILE).exists()


@pytest.fixture
def picked(tiny_llama, word_texts, monkeypatch):
    """A network, and an answer with a map and token embeddings beside it."""
    network = open_network(tiny_llama)

    def score(rows):
        return np.full(9, np.log(rows.var()) if np.abs(rows.mean(axis=0)).max() < 1e-6 else -20)

    monkeypatch.setattr(
        "layerwise.verbs.pick.run.proxy_probes", lambda **_: [Probe("deep", tuple(word_texts[:40]), score)]
    )
    book = Rulebook("test", {"deep": 1}, ("none", "remove_top:1"), -1000, static=True)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: book)
    found = pick_recipe(network, word_texts[:40], max_length=32, name="words")
    assert found.recipe.transform == "remove_top:1+static"
    return network, found


def weights_in(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


def test_library_saved_pick_and_recipe_file_export_the_same_bytes(picked, tiny_llama, tmp_path):
    network, found = picked
    found.save(tmp_path / "run")
    layerwise.export(network, found, tmp_path / "library")
    ways = {"auto": ["--layer", f"{tmp_path / 'run'}:auto"], "file": ["--recipe", str(tmp_path / "run" / RECIPE_FILE)]}
    for name, option in ways.items():
        assert main(["export", tiny_llama, *option, "--out", str(tmp_path / name)]) == 0
    layerwise.export(network, FittedRecipe.load(tmp_path / "run"), tmp_path / "object")
    expected = weights_in(tmp_path / "library")
    assert len(expected) > 2, "the cut model, and Dense modules"
    for name in ("auto", "file", "object"):
        assert weights_in(tmp_path / name) == expected, name
    proof = json.loads((tmp_path / "auto" / "layerwise.json").read_text())
    assert proof["fitted_on"] == asdict(found.fitted.fitted_on) and proof["fitted_on"]["count"] == 40
    assert (proof["schema_version"], proof["backend"]) == (1, "sentence_transformers")
    assert proof["model"]["fingerprint"] == network.fingerprint()


def test_a_fitted_recipe_is_refused_for_another_model_everywhere(picked, tiny_bert, tmp_path, capsys):
    _, found = picked
    path = found.fitted.save(tmp_path / "run")
    with pytest.raises(InputError, match="was fitted for .* with other weights, config or tokenizer"):
        layerwise.export(tiny_bert, found.fitted, tmp_path / "m")
    with pytest.raises(InputError, match="was fitted for .* with other weights, config or tokenizer"):
        layerwise.export(tiny_bert, found.fitted, tmp_path / "m", fit=["w1", "w2"])
    root = write_root(tmp_path / "root")
    args = ["--tasks", "all", "--data-root", str(root), "--workers", "0", "--out", str(tmp_path / "e")]
    assert main(["eval", tiny_bert, "--recipe", str(path), *args]) == 2
    assert "other weights, config or tokenizer" in capsys.readouterr().err
    assert not (tmp_path / "m").exists() and not (tmp_path / "e").exists()


def test_eval_scores_a_fitted_recipe_with_its_own_map(picked, tiny_llama, word_texts, tmp_path):
    network, found = picked
    path, root = found.fitted.save(tmp_path / "run"), write_root(tmp_path / "root")
    args = ["--tasks", "all", "--data-root", str(root), "--workers", "0", "--out", str(tmp_path / "e")]
    assert main(["eval", tiny_llama, "--recipe", str(path), *args]) == 0
    table = layerwise.LayerTable.load(tmp_path / "e")
    assert {row.fit for row in table} == {texts_fingerprint(word_texts[:40])}
    options = {"data_root": root, "max_length": 32}
    fitted_again = layerwise.eval(
        network, "all", out=tmp_path / "again", recipes=found.recipe, fit=word_texts[:40], **options
    )
    assert [r.value for r in fitted_again] == pytest.approx([r.value for r in table], abs=1e-3)
    # Another map of the same recipe is another row, not the score that is there already.
    layer, static = found.fitted.maps
    halved = (layer, replace(static, weight=0 * static.weight))
    other = replace(found.fitted, maps=halved, fitted_on=replace(found.fitted.fitted_on, fingerprint="other"))
    scored = layerwise.eval(network, "all", out=tmp_path / "e", recipes=[other], **options)
    assert {row.fit for row in scored} == {"other"} and [r.value for r in scored] != [r.value for r in table]
    kept = layerwise.LayerTable.load(tmp_path / "e")
    assert {row.fit for row in kept} == {"other", texts_fingerprint(word_texts[:40])}


def test_a_map_says_what_it_was_fitted_on(tiny_llama, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, metrics="dataset_entropy", out=tmp_path / "scan")
    run = layerwise.LayerTable.load(tmp_path / "scan").run
    kinds = {"scan": tmp_path / "scan", "texts": word_texts}
    for kind, fit in kinds.items():
        layerwise.export(tiny_llama, 2, tmp_path / kind / "m", transform="center", fit=fit)
        on = json.loads((tmp_path / kind / "m" / "layerwise.json").read_text())["fitted_on"]
        expected = run["data"]["fingerprint"] if kind == "scan" else texts_fingerprint(word_texts)
        assert (on["kind"], on["count"], on["fingerprint"]) == (kind, len(word_texts), expected)
    with pytest.raises(InputError, match="fit `task` is for eval"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", transform="center", fit="task")


def test_a_length_that_is_asked_for_holds_for_recipes_that_have_none(tiny_llama, tmp_path):
    options = {"data_root": write_root(tmp_path / "root"), "out": tmp_path / "e", "max_length": 7}
    table = layerwise.eval(tiny_llama, "all", recipes=Recipe(2), **options)
    assert {row.max_length for row in table} == {7}


def test_a_map_is_fitted_on_texts_that_can_be_gone_through_once(tiny_llama, tmp_path, word_texts):
    layerwise.export(tiny_llama, 1, tmp_path / "list", transform="center", fit=word_texts)
    layerwise.export(tiny_llama, 1, tmp_path / "once", transform="center", fit=(text for text in word_texts))
    hashes = [json.loads((tmp_path / name / "layerwise.json").read_text())["fitted_on"] for name in ("list", "once")]
    assert hashes[0] == hashes[1]

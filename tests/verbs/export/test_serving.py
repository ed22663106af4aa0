"""Serving: exported folders are read by programs that know only the old names of modules and pooling keys."""

import json

import numpy as np
import pytest
from families import WIDTH, make_model, make_reader, make_tokenizer
from plain_server import serve

import layerwise
from layerwise.core.errors import InputError
from layerwise.models.load import build_network
from layerwise.models.opening import open_network
from layerwise.models.servable import is_servable
from layerwise.verbs.export.backends.sentence_transformers import modules
from layerwise.verbs.export.backends.sentence_transformers.old_names import with_old_keys
from layerwise.verbs.pick import run
from layerwise.verbs.pick.decision import signed
from layerwise.verbs.pick.probes import Probe
from layerwise.verbs.pick.run import Rulebook

st = pytest.importorskip("sentence_transformers")
RECIPES = {
    "mean": {},
    "map": {"transform": "remove_top:2", "normalize": True},
    "last and mean": {"pooling": "last", "transform": "center+mean"},
    "static": {"transform": "center+static"},
    "no first": {"tokens": "no_first", "template": "w1 {text}"},
}


def encoded(folder, texts):
    return st.SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False)


def as_json(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", RECIPES)
def test_old_names_give_the_vectors_of_new_names(name, tiny_llama, word_texts, tmp_path, monkeypatch):
    options = RECIPES[name] | ({"fit": word_texts} if "transform" in RECIPES[name] else {})
    layerwise.export(tiny_llama, 2, tmp_path / "old", texts=word_texts, **options)
    monkeypatch.setattr(modules, "write_old_names", lambda folder, length: None)
    layerwise.export(tiny_llama, 2, tmp_path / "new", texts=word_texts, **options)
    types = [module["type"] for module in as_json(tmp_path / "old" / "modules.json")]
    assert all(word.startswith("sentence_transformers.models.") for word in types), types
    assert types != [module["type"] for module in as_json(tmp_path / "new" / "modules.json")]
    assert np.abs(encoded(tmp_path / "old", word_texts) - encoded(tmp_path / "new", word_texts)).max() == 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_reader_of_the_old_pooling_keys_alone_gives_the_same_vectors(name, tiny_llama, word_texts, tmp_path):
    options = RECIPES[name] | ({"fit": word_texts} if "transform" in RECIPES[name] else {})
    layerwise.export(tiny_llama, 2, tmp_path / "m", texts=word_texts, **options)
    expected = encoded(tmp_path / "m", word_texts)
    for module in as_json(tmp_path / "m" / "modules.json"):
        if module["type"].endswith(".Pooling"):
            path = tmp_path / "m" / module["path"] / "config.json"
            config = {k: v for k, v in as_json(path).items() if k not in ("pooling_mode", "embedding_dimension")}
            assert config["word_embedding_dimension"] == WIDTH and sum(v is True for v in config.values()) >= 1
            path.write_text(json.dumps(config))
    assert np.abs(encoded(tmp_path / "m", word_texts) - expected).max() == 0


def test_old_pooling_keys_are_left_out_where_they_would_mean_another_order():
    assert with_old_keys({"pooling_mode": ["lasttoken", "mean"]}) == {"pooling_mode": ["lasttoken", "mean"]}
    assert with_old_keys({"pooling_mode": ["mean", "lasttoken"]})["pooling_mode_lasttoken"] is True
    assert with_old_keys({"pooling_mode": "mean"})["pooling_mode_cls_token"] is False


def test_a_folder_exported_from_the_recipe_of_another_gives_the_same_vectors(tiny_llama, word_texts, tmp_path):
    out = tmp_path / "m"
    layerwise.export(tiny_llama, 2, out, transform="center", fit=word_texts, texts=word_texts)
    layerwise.export(tiny_llama, layerwise.Recipe.load(out), tmp_path / "again", fit=word_texts, texts=word_texts)
    assert np.abs(encoded(tmp_path / "again", word_texts) - encoded(out, word_texts)).max() == 0


SERVABLE = [  # family, recipe
    ("llama", {"norm": "normed"}),
    ("llama", {"norm": "normed", "pooling": "last", "transform": "remove_top:2@7", "normalize": True}),
    ("llama", {"norm": "normed", "template": "w1 {text} w2"}),
    ("bert", {"pooling": "first"}),
]
NOT_SERVABLE = [
    ("llama", 2, {}, "use --norm normed"),
    ("llama", 0, {}, "use layer 1 or higher"),
    ("llama", 2, {"norm": "normed", "tokens": "no_special"}, "use --tokens all"),
    ("llama", 2, {"norm": "normed", "pooling": "max"}, "pooling max is not one of mean, last, first"),
    ("llama", 2, {"norm": "normed", "template": "w1 {text}"}, "not part of tokenizer.json"),
    ("bert", 2, {"transform": "center+static"}, r"leave out \+static"),
    ("bert", 2, {"pooling": "last", "transform": "center+mean"}, r"leave out \+mean"),
]


@pytest.mark.parametrize(("family", "options"), SERVABLE)
def test_a_servable_folder_has_exactly_the_blocks_of_its_layer_and_plain_modules(family, options, word_texts, tmp_path):
    model = (make_model(family), make_tokenizer())
    fit = {"fit": word_texts} if "transform" in options else {}
    layerwise.export(model, 2, tmp_path / "m", servable=True, texts=word_texts, **options, **fit)
    kinds = [module["type"].rpartition(".")[2] for module in as_json(tmp_path / "m" / "modules.json")]
    assert kinds[:2] == ["Transformer", "Pooling"] and set(kinds[2:]) <= {"Dense", "Normalize"}
    assert as_json(tmp_path / "m" / "config.json")["num_hidden_layers"] == 2
    config = as_json(tmp_path / "m" / "sentence_bert_config.json")
    assert config["modality_config"]["text"]["method_output_name"] == "last_hidden_state"
    assert config["max_seq_length"] == 64 and config["do_lower_case"] is False
    assert as_json(tmp_path / "m" / "layerwise.json")["servable"] is True


@pytest.mark.parametrize(("family", "layer", "options", "reason"), NOT_SERVABLE)
def test_what_servers_cannot_compute_is_refused_with_the_reason(family, layer, options, reason, word_texts, tmp_path):
    model = (make_model(family), make_tokenizer())
    fit = {"fit": word_texts} if "transform" in options else {}
    with pytest.raises(InputError, match=f"this recipe is not servable: .*{reason}"):
        layerwise.export(model, layer, tmp_path / "m", servable=True, texts=word_texts, **options, **fit)
    assert not list(tmp_path.iterdir())


def test_an_export_that_is_not_servable_says_so(tiny_llama, word_texts, tmp_path):
    layerwise.export(tiny_llama, 2, tmp_path / "raw", texts=word_texts)
    assert as_json(tmp_path / "raw" / "layerwise.json")["servable"] is False


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_pick_servable_chooses_a_recipe_that_exports_and_reports_what_it_costs(family, word_texts, tmp_path):
    network = build_network(*make_reader(family), family)
    free = layerwise.pick(network, word_texts, max_length=32)
    found = layerwise.pick(network, word_texts, max_length=32, servable=True)
    assert is_servable(network, found.recipe)
    (cost,) = [line for line in found.why if line.startswith("servable: ")]
    if is_servable(network, free.recipe):
        assert "costs nothing" in cost and found.recipe == free.recipe
    else:
        assert f"(layer {free.recipe.layer}, " in cost and f"map {free.recipe.transform})" in cost
    if not found.keep_last:
        layerwise.export(network, found, tmp_path / "m", servable=True, texts=word_texts)
        assert as_json(tmp_path / "m" / "layerwise.json")["servable"] is True
    assert all(row.layer > 0 for row in found.layers)


def test_the_cost_of_servable_is_the_difference_of_the_scores(tiny_llama, word_texts, monkeypatch):
    """A probe that likes large vectors: raw layers of the tiny model have other lengths than normed ones."""
    book = Rulebook("sizes", {"size": 1.0}, ("none",), 0.0)

    def size(rows):
        return np.full(9, 1 / np.abs(rows).mean())

    monkeypatch.setattr(run, "proxy_probes", lambda **_: [Probe("size", tuple(word_texts[:9]), size)])
    network = open_network(tiny_llama)
    found = {
        servable: run.pick_recipe(network, word_texts, max_length=32, rulebook=book, servable=servable)
        for servable in (False, True)
    }
    gap = found[True].gain.mean - found[False].gain.mean
    (cost,) = [line for line in found[True].why if line.startswith("servable: ")]
    assert found[False].recipe.norm == "raw" and gap < -1
    assert cost.startswith(f"servable: {signed(gap)} ")


def test_a_rule_cannot_be_restricted_to_servable_recipes(runs):
    with pytest.raises(InputError, match="makes no use of servable"):
        layerwise.pick(str(runs[1] / "scan"), rule="depth:50%", servable=True)


@pytest.mark.parametrize(("family", "options"), SERVABLE)
def test_a_reader_with_the_rules_of_servers_gives_the_vectors_of_a_servable_folder(
    family, options, word_texts, tmp_path
):
    model = (make_model(family), make_tokenizer())
    fit = {"fit": word_texts} if "transform" in options else {}
    layerwise.export(model, 2, tmp_path / "m", servable=True, texts=word_texts, **options, **fit)
    found, skipped = serve(tmp_path / "m", word_texts)
    wanted = encoded(tmp_path / "m", word_texts)
    assert not skipped and np.abs(found.numpy() - wanted).max() <= 1e-5 * np.abs(wanted).max()
    rows = {row["program"]: row for row in as_json(tmp_path / "m" / "layerwise.json")["serving"]}
    known = {"Text Embeddings Inference": "by its source code, not run", "vLLM": "run on other exports (studies/serve)"}
    for program, how in known.items():
        assert (rows[program]["vectors"], rows[program]["known"]) == ("exact", how)
    assert "length 1" in rows["Text Embeddings Inference"]["note"] and "length 1" not in rows["vLLM"]["note"]
    assert "## Where it can be served" in (tmp_path / "m" / "README.md").read_text()


OTHER_VECTORS = [{}, {"tokens": "no_first", "template": "w1 {text}"}, {"norm": "normed", "template": "w1 {text}"}]


@pytest.mark.parametrize("options", OTHER_VECTORS)
def test_the_table_says_where_servers_give_other_vectors_and_the_reader_does(options, word_texts, tmp_path):
    layerwise.export((make_model("llama"), make_tokenizer()), 2, tmp_path / "m", texts=word_texts, **options)
    found, _ = serve(tmp_path / "m", word_texts)
    wanted = encoded(tmp_path / "m", word_texts)
    assert np.abs(found.numpy() - wanted).max() > 0.01 * np.abs(wanted).max()
    rows = {row["program"]: row for row in as_json(tmp_path / "m" / "layerwise.json")["serving"]}
    assert rows["Text Embeddings Inference"]["vectors"] == rows["vLLM"]["vectors"] == "other vectors"
    assert rows["sentence-transformers"]["known"] == "run on this export" and rows["vLLM"]["note"]

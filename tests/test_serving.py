"""Serving: exported folders are read by programs that know only the old names of modules and pooling keys."""

import json

import numpy as np
import pytest
from families import WIDTH

import layerwise
from layerwise.exporter.backends.sentence_transformers import modules
from layerwise.exporter.backends.sentence_transformers.old_names import with_old_keys

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
    monkeypatch.setattr(modules, "write_old_names", lambda folder: None)
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


def test_a_folder_of_an_earlier_version_is_recognised_with_the_command_that_exports_it_again(
    tiny_llama, word_texts, tmp_path, capsys
):
    out, record_file = tmp_path / "m", tmp_path / "m" / "layerwise.json"
    layerwise.export(tiny_llama, 2, out, transform="center", fit=word_texts, texts=word_texts)
    layerwise.embed(str(out), word_texts[:2])  # no warning for a folder of this version
    record = as_json(record_file)
    for old in ({**record, "schema_version": 3}, {"base_model": tiny_llama, "recipe": record["recipe"]}):
        record_file.write_text(json.dumps(old))
        command = f"layerwise export {tiny_llama} --recipe {out} --fit FILE --out NEW"
        with pytest.warns(UserWarning, match="exported by an earlier version.*" + command.replace(".", r"\.")):
            layerwise.embed(str(out), word_texts[:2])
    layerwise.export(
        tiny_llama, layerwise.Recipe.load(out), tmp_path / "again", fit=word_texts, texts=word_texts
    )  # the command works
    assert np.abs(encoded(tmp_path / "again", word_texts) - encoded(out, word_texts)).max() == 0

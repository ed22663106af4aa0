"""One word for one idea: `norm` is raw or normed, `readout` the whole; files that say it the older way still read."""

import json
from pathlib import Path

import pytest

import layerwise
from layerwise.core.errors import InputError, RunError
from layerwise.core.formats import parquet_bytes, read_parquet
from layerwise.core.recipe import Readout, Recipe
from layerwise.core.tensors import dump_tensors, parse_tensors
from layerwise.maps.fitted import RECIPE_KEY, FittedRecipe
from layerwise.runs.identity import ModelRef
from layerwise.runs.table import LayerTable, parse_scores
from layerwise.verbs.compare.paired import PROMPT_COLUMNS, Prompts, difference
from layerwise.verbs.eval.vectors import VectorKind, find_kinds

EARLIER = Path(__file__).parent / "data" / "earlier_runs"


def test_the_readout_of_a_recipe_is_a_readout():
    recipe = Recipe(5, "normed", "no_first", "last", transform="center")
    assert recipe.readout == Readout(5, norm="normed", tokens="no_first", pooling="last")
    assert json.loads(recipe.to_json())["norm"] == "normed" and "readout" not in json.loads(recipe.to_json())


def test_a_recipe_of_an_older_file_says_readout_for_norm():
    assert Recipe.from_json('{"layer": 5, "readout": "normed"}') == Recipe(5, "normed")
    assert Recipe.load(EARLIER / "second/scan/pick.json").norm == "normed"
    with pytest.raises(InputError, match="cannot have the field 'readout'"):
        Recipe.from_json('{"layer": 5, "readout": "normed", "norm": "normed"}')


@pytest.mark.parametrize("version", ["first", "second"])
def test_tables_of_older_runs_have_the_column_norm(version):
    table = LayerTable.load(EARLIER / version / "scan")
    assert {row.norm for row in table} == {"raw", "normed"}
    older = read_parquet((EARLIER / version / "scan/table.parquet").read_bytes(), "older")
    assert [row.norm for row in table] == older["readout"].to_pylist()


def test_a_table_with_the_older_and_the_newer_column_is_refused():
    older = read_parquet((EARLIER / "second/scan/table.parquet").read_bytes(), "older")
    with pytest.raises(RunError, match="has a column readout unknown to this version"):
        parse_scores(older.append_column("norm", older["readout"]), "both")


def test_numbers_of_prompts_of_an_older_run_pair_with_new_ones(tiny_llama, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, out=tmp_path, metrics="curvature", keep_prompts="all")
    new = Prompts.open(tmp_path)
    ((name, data),) = new.files.items()
    table = read_parquet(data, name)
    assert tuple(table.column_names) == PROMPT_COLUMNS
    older = table.rename_columns(["readout" if column == "norm" else column for column in table.column_names])
    found = Prompts("older", {name: parquet_bytes(older)}).rows(layer=2, norm="raw")
    assert len(found) == len(word_texts) and found.equals(new.rows(layer=2, norm="raw"))
    assert difference(EARLIER / "second/scan", "prompt_entropy", 1, 2, norm="raw").n > 2


def test_a_fitted_recipe_of_an_older_file_says_readout_for_norm():
    fitted = FittedRecipe(Recipe(3, "normed"), ModelRef("org/model", fingerprint="abcd"))
    words, tensors = parse_tensors(RECIPE_KEY, fitted.to_bytes())
    assert '"norm": "normed"' in words
    older = dump_tensors(RECIPE_KEY, words.replace('"norm":', '"readout":'), tensors)
    assert FittedRecipe.from_bytes(older, "older") == fitted


def test_the_vectors_of_an_older_evaluation_stop_no_new_one(tmp_path):
    kind = VectorKind("m", "float32", 9, (Readout(1, "normed"),))
    place = tmp_path / "a" / "vectors" / "b"
    place.mkdir(parents=True)
    read = [{"layer": 1, "readout": "normed", "tokens": "all", "pooling": "mean"}]
    record = {"model": "m", "dtype": "float32", "max_length": 9, "readouts": read, "prompt": "", "role": ""}
    (place / "kind.json").write_text(json.dumps(record))
    assert find_kinds(tmp_path) == [kind]

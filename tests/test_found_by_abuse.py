"""Faults that the campaign of tests/abuse has found, one small test each; docs/reliability.md lists them."""

import json
import shutil

import pandas as pd
import pytest

import layerwise
from layerwise.cli.main import main
from layerwise.core.errors import InputError, ModelError


def with_config(model, folder, **changes):
    shutil.copytree(model, folder)
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(record | changes))
    return str(folder)


@pytest.mark.parametrize("changes", [
    {"num_hidden_layers": [1, 1]}, {"tie_word_embeddings": ""}, {"num_attention_heads": 0}, {"hidden_size": -1},
])  # fmt: skip
def test_a_config_with_absurd_values_is_a_model_that_cannot_be_loaded(changes, tiny_llama, tmp_path, capsys):
    model = with_config(tiny_llama, tmp_path / "odd", **changes)
    for verb in (layerwise.plan, layerwise.scan):
        with pytest.raises(ModelError, match="odd"):
            verb(model, ["w1 w2 w3", "w4 w5"])
    assert main(["scan", model, "--dry-run"]) == 2
    assert "unexpected" not in capsys.readouterr().err


def test_a_name_that_is_too_long_for_a_file_is_refused_in_one_line(capsys):
    for words in (
        ["tradeoff", "é" * 300],
        ["report", "é" * 300, "--html", "x.html"],
        ["pick", "é" * 300, "--rule", "last"],
    ):
        assert main(words) == 2
        printed = capsys.readouterr().err
        assert "unexpected" not in printed and "ééé" in printed


def test_a_table_of_scores_without_a_column_is_named(tmp_path, capsys):
    (tmp_path / "known.csv").write_text("a,b\n1,2\n")
    assert main(["audit", str(tmp_path / "known.csv")]) == 2
    assert "known.csv lacks family" in capsys.readouterr().err


def test_a_table_of_scores_of_too_deep_a_model_is_refused_before_it_fills_the_memory():
    rows = [("f", "m", "t", layer, 1.0) for layer in (0, 2**40)]
    scores = pd.DataFrame(rows, columns=["family", "model", "task", "layer", "score"])
    with pytest.raises(InputError, match="the table of scores has layer 1,099,511,627,776"):
        layerwise.audit(scores)

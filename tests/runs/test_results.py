"""Results: a table that survives the disk, shows itself, and says what it lacks."""

import json
import math
import re

import pytest

from layerwise.core.errors import InputError, RunError
from layerwise.runs.records import environment
from layerwise.runs.scores import LayerScore
from layerwise.runs.summary import sparkline, summary, with_interval
from layerwise.runs.table import LayerTable


def score(layer, value, **more):
    given = dict(model="m", depth=layer / 2, norm="raw", tokens="all", pooling="-", rows="raw", metric="curvature")
    return LayerScore(layer=layer, value=value, n=7, **(given | more))


TABLE = LayerTable(
    (
        score(0, 1.5, ci_low=1.0, ci_high=2.0),
        score(1, math.nan, skipped=3),
        score(2, 0.5),
        score(2, 0.7, norm="normed"),
    ),
    {"kind": "scan", "command": "…"},
)


def test_a_table_survives_the_round_trip(tmp_path):
    TABLE.save(tmp_path)
    back = LayerTable.load(tmp_path)
    assert back.run == TABLE.run
    assert [repr(s) for s in back] == [repr(s) for s in TABLE]


def test_json_has_null_for_what_is_undefined():
    record = json.loads(TABLE.to_json())
    assert record["scores"][1]["value"] is None and record["scores"][0]["ci_low"] == 1.0


def test_rows_are_found_by_their_columns():
    assert [s.layer for s in TABLE.where(norm="raw", metric="curvature")] == [0, 1, 2]
    with pytest.raises(InputError, match="unknown column layers; the columns are model, layer"):
        TABLE.where(layers=1)


def test_the_summary_is_one_line_per_curve_with_the_normed_last_layer_in_it():
    facts, settings, head, line = summary(TABLE.scores).splitlines()
    assert (facts, settings) == ("m, 3 layers", "rows raw, all tokens, norm raw")
    assert line.split() == "curvature 1.5 0.5 0.7 2 0 █·▁".split()
    assert head.split() == "metric first last normed min at max at by layer".split()


def test_settings_that_differ_are_columns_and_the_others_are_in_the_caption():
    rows = [score(layer, float(layer), rows=word) for layer in range(3) for word in ("raw", "unit")]
    _, settings, head, *lines = summary(rows).splitlines()
    assert settings == "all tokens, norm raw"
    assert head.split()[:2] == ["metric", "rows"] and [line.split()[1] for line in lines] == ["raw", "unit"]


def test_the_caption_counts_texts_cut_and_left_out():
    run = {"data": {"prompts": 1400, "cut": 12, "missing": ["a"], "unit": "text"}}
    assert repr(LayerTable(TABLE.scores, run)).splitlines()[0] == "m, 1,400 texts (12 cut, 1 left out), 3 layers"
    assert repr(LayerTable(TABLE.scores, {"data": {"prompts": 1}})).startswith("m, 1 example, 3 layers\n")


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (0.7317, 0.72, 0.743, "0.732 ±0.012"),
        (42.06, 41.6, 42.5, "42.1 ±0.5"),
        (1.5, 1.4, 1.9, "1.5 ±0.4"),  # not symmetric: the larger side
        (9741.2, 9600.0, 9880.0, "9741 ±141"),
        (9.779, 9.7741, 9.7839, "9.779 ±0.005"),
        (2.07654, 2.0765, 2.0766, "2.077 ±6e-05"),
        (0.0, -7e-16, 7e-16, "0 ±7e-16"),
        (1234567.0, math.nan, math.nan, "1.235e+06"),
        (math.nan, math.nan, math.nan, "n/a"),
    ],
)
def test_a_value_is_rounded_as_its_interval_allows(value, low, high, said):
    assert with_interval(score(0, value, ci_low=low, ci_high=high)) == said


@pytest.mark.parametrize("layers", [1, 5, 49, 200])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"metric": "prompt_entropy_normalized"},
        {"metric": "AmazonCounterfactualClassificationOfVeryLongNames" * 2, "rows": "-", "pooling": "mean"},
        {"transform": "whiten:0.1:128", "template": "query: {text}", "normalize": True, "max_length": 512},
    ],
)
def test_a_table_fits_80_columns_and_no_number_is_broken(layers, more):
    last = {"ci_low": -12345.6, "ci_high": 12345.6}
    rows = [score(layer, 1000 * math.sin(layer), depth=layer / 200, **last | more) for layer in range(layers)]
    rows += [score(layer, 0.5, depth=layer / 200, tokens="no_first", **more) for layer in range(layers)]
    rows += [score(layers - 1, 0.123456, norm="normed", depth=1.0, **last | more)]
    lines = repr(LayerTable(tuple(rows))).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if "±12346" in line], "the last value and its interval stand in one line"


def test_a_notebook_shows_what_the_terminal_shows():
    rows = [
        score(layer, layer / 7, ci_low=0.0, ci_high=1.0, rows=word) for layer in range(5) for word in ("raw", "unit")
    ]
    table = LayerTable(tuple(rows))
    page = table._repr_html_()
    for line in repr(table).splitlines()[3:]:
        for cell in re.split(r"  +", line):
            assert f"<td>{cell}</td>" in page
    assert "all tokens, norm raw; ±: 95 % interval</caption>" in page


def test_a_picture_of_many_layers_is_made_narrower():
    assert sparkline([0, 0, 4, 4, 8, 8], 3) == "▁▅█"
    assert len(sparkline(list(range(49)), 12)) == 12
    assert sparkline([1, 2], 5) == "▁█", "never wider than there are layers"


def test_html_escapes_what_it_shows():
    shown = LayerTable((score(0, 1.0, model="<script>alert(1)</script>"),))._repr_html_()
    assert "<script>" not in shown and "<table>" in shown


def test_missing_and_damaged_runs_are_told_apart_from_results(tmp_path):
    with pytest.raises(RunError, match="no finished run"):
        LayerTable.load(tmp_path)
    TABLE.save(tmp_path)
    (tmp_path / "table.parquet").write_bytes((tmp_path / "table.parquet").read_bytes()[:-9])
    with pytest.raises(RunError, match="table.parquet is damaged"):
        LayerTable.load(tmp_path)


def test_a_run_from_the_command_line_records_the_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/usr/bin/layerwise", "scan", "a model", "--limit", "5"])
    assert environment()["command"] == "layerwise scan 'a model' --limit 5"
    monkeypatch.setattr("sys.argv", ["notebook.py"])
    assert "command" not in environment()


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    TABLE.save(tmp_path)
    before = (tmp_path / "table.parquet").read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="(table.parquet|run.json): No space left on device"):
        LayerTable((score(0, 9.0),)).save(tmp_path)
    assert (tmp_path / "table.parquet").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "table.parquet"]


def test_sparklines_go_from_lowest_to_highest():
    assert sparkline([0, 1, 2, 7]) == "▁▂▃█"
    assert sparkline([3, 3, math.nan]) == "▁▁·"
    assert sparkline([]) == ""

"""Results: a table that survives the disk, shows itself, and says what it lacks."""

import json
import math

import pytest

from layerwise.core.errors import InputError, RunError
from layerwise.runs.records import environment
from layerwise.runs.scores import LayerScore
from layerwise.runs.summary import sparkline, summary
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
    told = json.loads(TABLE.to_json())
    assert told["scores"][1]["value"] is None and told["scores"][0]["ci_low"] == 1.0


def test_rows_are_found_by_their_columns():
    assert [s.layer for s in TABLE.where(norm="raw", metric="curvature")] == [0, 1, 2]
    with pytest.raises(InputError, match="no column layers; a row has model, layer"):
        TABLE.where(layers=1)


def test_the_summary_is_one_line_a_curve_with_the_normed_last_layer_in_it():
    head, line = summary(TABLE.scores).splitlines()
    assert line.split() == "m curvature raw all - raw 1.5 0.5 0.7 at 2 at 0 █·▁".split()
    assert head.split()[:3] == ["model", "metric", "rows"]


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
    with pytest.raises(InputError, match="table.parquet: No space left on device"):
        LayerTable((score(0, 9.0),)).save(tmp_path)
    assert (tmp_path / "table.parquet").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "table.parquet"]


def test_sparklines_go_from_lowest_to_highest():
    assert sparkline([0, 1, 2, 7]) == "▁▂▃█"
    assert sparkline([3, 3, math.nan]) == "▁▁·"
    assert sparkline([]) == ""

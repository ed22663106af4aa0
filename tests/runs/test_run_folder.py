"""Runs: opened the same way from a folder or in memory, records with versions, and rows that say all that they are."""

import json
from dataclasses import fields, replace

import pytest
from made_runs import eval_table, scan_table

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder
from layerwise.runs.folder import Run, is_run, prompts_file, shard_count, state_file
from layerwise.runs.identity import DataRef, ModelRef, data_fingerprint, same_model
from layerwise.runs.keys import CONTENT_DIGESTS, StateKey
from layerwise.runs.records import PICK, PLAN, RUN, TRADEOFF, NewerVersionError
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.compare.comparison import compare_runs
from layerwise.verbs.lab.tradeoff.measured import mean_scores
from layerwise.verbs.pick.run import pick_by_rule
from layerwise.verbs.report.content import run_labels

# What a row's identity leaves out.
MEASURED = {"value", "n", "skipped", "ci_low", "ci_high", "missing", "note", "depth"}


@pytest.mark.parametrize("name", [f.name for f in fields(LayerScore) if f.name not in MEASURED])
def test_every_column_that_decides_a_number_is_part_of_its_identity(name):
    row = scan_table().scores[0]
    other = {str: "another", int: 77, float: 0.25, bool: True}[type(getattr(row, name))]
    assert replace(row, **{name: other}).identity != row.identity


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_what_was_measured_is_not_part_of_a_rows_identity(name):
    row = scan_table().scores[0]
    other = "noted" if name == "note" else 77
    assert replace(row, **{name: other}).identity == row.identity


@pytest.mark.parametrize("schema", [RUN, PLAN, PICK, TRADEOFF])
def test_a_record_says_its_version_and_a_newer_one_is_refused_by_name(schema):
    data = schema.dump({})
    assert {**json.loads(data), "checksum": 0} == {"schema_version": schema.version, "checksum": 0} and schema.parse(
        data, "x"
    ) == {}
    newer = json.dumps({"schema_version": schema.version + 1}).encode()
    with pytest.raises(NewerVersionError, match=f"here/{schema.file} was written by a newer layerwise"):
        schema.parse(newer, f"here/{schema.file}")
    for wrong in ("2", 0, True, None):
        with pytest.raises(RunError, match="is damaged"):
            schema.parse(json.dumps({"schema_version": wrong}).encode(), "x")
    with pytest.raises(RunError, match="was not written by layerwise, or is damaged"):
        schema.parse(json.dumps(dict.fromkeys(schema.identifying_fields)).encode(), "x")


def test_a_run_is_opened_from_a_folder_a_table_or_a_run(tmp_path):
    table = scan_table()
    table.save(tmp_path)
    for given in (tmp_path, str(tmp_path), table, Run.open(tmp_path)):
        run = Run.open(given)
        assert is_run(given) and len(run.table) == len(table) and run.kind == "scan"
        assert run.table.model == table.model and run.pick == {} and run.tradeoff == {}
        assert run.location == ("a table in memory" if given is table else str(tmp_path))
    assert not is_run(tmp_path / "nothing") and not is_run("org/model") and not is_run(None)
    with pytest.raises(RunError, match="has no per-prompt values"):
        Run.open(table).prompts()
    assert Run.open(table).newest_state() is None


def replaced(folder, monkeypatch, after):
    """What a reader gets if another process replaces a run of depth 3 by one of depth 5 while it reads: the table that
    it finds first is the old one, and every write of the other process up to `after` is done before it reads run.json.
    """
    scan_table(depth=3).save(folder)
    old = (folder / "table.parquet").read_bytes()
    with monkeypatch.context() as patched:
        usual, writes = DiskFolder.write, []

        def write(self, name, data):
            if len(writes) < after:
                writes.append(name)
                usual(self, name, data)

        patched.setattr(DiskFolder, "write", write)
        scan_table(depth=5).save(folder)
    assert writes == ["run.json", "table.parquet", "run.json"][:after]
    usual_read, reads = DiskFolder.read, []

    def read(self, name):
        reads.append(name)
        return old if reads == ["table.parquet"] else usual_read(self, name)

    monkeypatch.setattr(DiskFolder, "read", read)
    return LayerTable.load(folder)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_table_that_is_replaced_meanwhile_is_read_with_its_own_record(after, tmp_path, monkeypatch):
    table = replaced(tmp_path, monkeypatch, after)
    assert max(row.layer for row in table) == table.run["model"]["depth"] == (5 if after == 3 else 3)
    monkeypatch.undo()
    table = LayerTable.load(tmp_path)
    assert max(row.layer for row in table) == table.run["model"]["depth"] == (5 if after > 1 else 3)
    scan_table(depth=7).save(tmp_path)
    assert LayerTable.load(tmp_path).run == {**scan_table(depth=7).run}


def test_a_table_of_several_models_or_revisions_is_taken_apart():
    one, two = scan_table("a"), scan_table("b")
    later = LayerTable(tuple(replace(row, revision="v2") for row in one), one.run)
    run = Run(LayerTable.join([one, two, later]))
    parts = run.split_by_model()
    assert [(part.table.scores[0].model, part.table.scores[0].revision) for part in parts] == [
        ("a", "main"), ("b", "main"), ("a", "v2")]  # fmt: skip
    assert sum(len(part.table) for part in parts) == len(run.table) and parts[1].table.model == two.model
    assert Run(one).split_by_model() == [Run(one)]
    assert run.table.model is None and len(run.table.models) == 3
    with pytest.raises(RunError, match=r"runs of 2 models \(a, b\)"):
        run.table.require_model()


def test_runs_of_one_model_joined_are_still_of_that_model():
    one = scan_table("a")
    assert LayerTable.join([one, one]).model == one.model
    assert LayerTable(one.scores).model is None and not same_model(None, one.model)


def test_curves_of_two_data_sets_or_settings_are_not_drawn_as_one():
    table = scan_table("a", metrics=("curvature",), rows=("raw",))
    data = {"data": "other.txt", "data_hash": "1"}
    for change in (data, {"settings_hash": "1"}, {"dtype": "bfloat16"}, {"model_hash": "1"}):
        both = LayerTable((*table, *(replace(row, **change) for row in table)))
        assert len(both.curves()) == 2 * len(table.curves())
        assert all(len({row.layer for row in curve}) == len(curve) for curve in both.curves().values())
    tasks = eval_table("a")
    hashed = LayerTable(tuple(replace(row, data_hash=row.metric) for row in tasks))
    assert list(hashed.curves()) == list(tasks.curves()), "tasks have data of their own, which their name says"


def test_names_of_files_and_keys_are_read_as_they_are_written():
    assert shard_count(state_file(12)) == 12 and prompts_file(3) == "prompts/00003.parquet"
    key = StateKey(7, "raw", "no_first", "mean", "own@metric#1a|b")
    assert (
        StateKey.parse(str(key)) == key and StateKey.parse(CONTENT_DIGESTS) is None and StateKey.parse("facts") is None
    )


def test_references_know_their_own_kind_only():
    a = ModelRef("m", fingerprint="files-1")
    assert a.same_as(replace(a, name="elsewhere")) and not a.same_as(replace(a, fingerprint="files-2"))
    assert not ModelRef("m").same_as(ModelRef("m")), "nothing is known of either"
    assert ModelRef.from_record(a.to_record(), "x") == a
    with pytest.raises(RunError, match="does not say which model"):
        ModelRef.from_record({}, "x")
    data = DataRef("t.txt", data_fingerprint(3, 5), {"limit": 3})
    assert data.fingerprint == "3-0000000000000005" and DataRef.from_record(data.to_record(), "x") == data
    assert data.same_as(DataRef("moved.txt", data.fingerprint)) and not DataRef("a").same_as(DataRef("a"))


def test_a_model_that_was_retrained_under_its_name_is_another_one():
    one = LayerTable(tuple(replace(row, model_hash="files-1") for row in scan_table("a")), scan_table("a").run)
    two = LayerTable(tuple(replace(row, model_hash="files-2") for row in one), one.run)
    both = LayerTable.join([one, two])
    assert len(Run(both).split_by_model()) == 2 and len(set(run_labels(Run(both).split_by_model()))) == 2
    with pytest.raises(InputError, match="contains runs of 2 models"):
        compare_runs([both, one])
    with pytest.raises(InputError, match="expected the table of one model"):
        pick_by_rule(both, "last")


@pytest.mark.parametrize("name", ["pick.json", "tradeoff.json"])
def test_a_record_of_another_model_is_not_shown_with_a_run(name, tmp_path):
    scan_table().save(tmp_path)
    there = {"layers": [], "units": {}, "model": {"name": "m", "fingerprint": "of another"}, "recipe": {"layer": 1}}
    (tmp_path / name).write_text(json.dumps(there | {"last": {"layer": 2}, "rule": "r", "schema_version": 1}))
    with pytest.raises(RunError, match=f"{name} belongs to another model than this run"):
        getattr(Run.open(tmp_path), name.partition(".")[0])


def test_a_tradeoff_never_averages_what_says_different_things():
    table = scan_table("a", metrics=("curvature",), rows=("raw",))
    with pytest.raises(InputError, match="the metrics of a scan cannot be averaged"):
        mean_scores(LayerTable.join([table, table]), "mean")
    both = LayerTable((*table, *(replace(row, data_hash="other") for row in table)), table.run)
    with pytest.raises(InputError, match="several values for layer 0, which differ in data_hash"):
        mean_scores(both, "curvature")
    first, *levels = (LayerTable(tuple(replace(r, condition="random", level=x) for r in table)) for x in (0.0, 0.5))
    found = mean_scores(LayerTable((*first, *levels[0])), "curvature")
    assert {row.level for row in found} == {0.0} and len(found) == len(table)
    tasks = eval_table("a", tasks=("A", "B"))
    fewer = LayerTable(tuple(row for row in tasks if row.metric == "A" or row.layer == 3), tasks.run)
    with pytest.warns(UserWarning, match="layers 0, 1, 2, 4, 5 have scores of fewer than 2 tasks"):
        assert {row.layer for row in mean_scores(fewer, "mean")} == {3}


def test_a_comparison_says_which_settings_differ():
    table = LayerTable(tuple(replace(row, max_length=64) for row in scan_table("a")), scan_table("a").run)
    other = LayerTable(tuple(replace(row, max_length=3) for row in table), table.run)
    assert compare_runs([table, table]).pairs[0].notes == ()
    assert compare_runs([table, other]).pairs[0].notes == (
        "max_length differs: 64 in the first run, 3 in the second",)  # fmt: skip

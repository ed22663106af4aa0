"""Nothing of the user's is changed or deleted: folders are claimed, names are exact, reading only reads."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import snapshots
from abuse.desk import BAD, GOOD, desk_for, verb_of
from abuse.oracles import UNASKED
from snapshots import DECOYS, SCAN, TEXTS, ours_in, put_decoys, snapshot

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder
from layerwise.core.formats import json_bytes, with_checksum
from layerwise.engines.checkpoints import Checkpoint
from layerwise.runs.folder import SHARD_FILE
from layerwise.runs.ownership import MARKER, claim
from layerwise.verbs import commands

# 1.1: the user's own files


def test_a_scan_refuses_a_folder_with_files_that_it_did_not_write(tiny_llama, tmp_path, capsys):
    census = tmp_path / "census"
    census.mkdir()
    for number in (1, 2, 3):
        (census / f"state-0{number}.csv").write_text("a,b\n")
    before = snapshot(tmp_path)
    assert main(["scan", tiny_llama, "--limit", "5", "--metrics", "curvature", "--out", str(census)]) == 2
    printed = capsys.readouterr().err
    assert "state-01.csv, state-02.csv, state-03.csv" in printed and "choose a new or empty folder for --out" in printed
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", ["scan", "eval", "stress:repeat_one", "campaign"])
def test_no_verb_touches_a_folder_of_the_user(runs, tmp_path, verb):
    put_decoys(tmp_path / "out")
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match="is not empty .* and is not a layerwise folder"):
        runs[0](verb, tmp_path / "out")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["", "  "])
@pytest.mark.parametrize("verb", ["scan", "eval", "stress:repeat_one", "campaign"])
def test_an_empty_name_is_not_the_current_folder(runs, tmp_path, monkeypatch, verb, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="empty|out: name a folder or url"):
        runs[0](verb, name)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("verb", ["scan", "eval", "stress:repeat_one", "campaign"])
def test_a_file_in_place_of_the_folder_is_refused(runs, tmp_path, verb):
    (tmp_path / "out").write_text("mine")
    for out in (tmp_path / "out", tmp_path / "out" / "deeper"):
        with pytest.raises(InputError, match="out is a file"):
            runs[0](verb, out)
    assert (tmp_path / "out").read_text() == "mine"


def test_files_that_a_user_puts_into_a_run_folder_stay(tiny_llama, tmp_path):
    out = tmp_path / "run"
    layerwise.scan(tiny_llama, TEXTS[:8], out=out, **SCAN)
    decoys = {
        name: data for name, data in DECOYS.items() if name not in (*ours_in(out), "shards/00000-00001.safetensors")
    }
    for name in decoys:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(decoys[name])
    del decoys["state-00001.safetensors"]  # exactly one of our names, in our folder
    (out / "state-00002.safetensors").unlink()
    layerwise.scan(tiny_llama, TEXTS[:8], out=out, **SCAN)
    assert {name: (out / name).read_bytes() for name in decoys} == decoys


def test_clearing_shards_deletes_shards_only(tmp_path):
    folder = DiskFolder(tmp_path)
    ours = ["00000-00001.safetensors", "12345-12346.safetensors"]
    names = [*ours, "00000.safetensors", "0-1.safetensors", "notes.txt", "a00000-00001.safetensors", ".x"]
    for name in names:
        folder.write(f"shards/{name}", b"x")
    (tmp_path / "shards" / "00002-00003.safetensors").mkdir()
    folder.clear("shards", SHARD_FILE)
    left = {path.name for path in (tmp_path / "shards").iterdir()}
    assert left == {*names[2:], "00002-00003.safetensors"}
    shutil.rmtree(tmp_path / "shards")
    folder.write("shards/00000-00001.safetensors", b"x")
    folder.clear("shards", SHARD_FILE)
    assert not (tmp_path / "shards").exists()


def test_forgetting_a_checkpoint_deletes_exact_names_only(tmp_path):
    put_decoys(tmp_path)
    before = snapshot(tmp_path)
    Checkpoint(DiskFolder(tmp_path), lambda data: data, 0).delete()
    gone = {str(tmp_path / name) for name in ("state-00001.safetensors", "shards/00000-00001.safetensors")}
    assert snapshot(tmp_path) == {name: data for name, data in before.items() if name not in gone}


def test_a_store_of_vectors_deletes_segments_with_exact_names_only(tmp_path):
    from layerwise.core.recipe import Readout
    from layerwise.verbs.eval.vectors import VectorKind, VectorStore

    kind = VectorKind("m", "float32", 9, (Readout(1),))
    folder = VectorStore(tmp_path, kind).folder
    folder.mkdir()
    for name in ("segment-1.safetensors", "segment-notes.safetensors", f"segment-{'0' * 24}.safetensors.txt"):
        (folder / name).write_bytes(b"mine")
    before = snapshot(tmp_path)
    VectorStore(tmp_path, kind).evict()
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "lost+found", ".gitkeep"])
def test_what_systems_put_into_a_folder_does_not_count(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    claim(DiskFolder(tmp_path), "scan")
    assert (tmp_path / name).exists() and json.loads((tmp_path / MARKER).read_bytes())["kind"] == "scan"


@pytest.mark.parametrize("name", [".git", ".env", ".hidden"])
def test_every_other_hidden_file_counts(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(RunError, match=re.escape(f"is not empty ({name})")):
        claim(DiskFolder(tmp_path), "scan")


# 1.2: verbs do not overwrite each other's results

MATRIX = ("scan", "eval", "stress:repeat_one", "stress:random", "campaign")


@pytest.mark.parametrize("there", ["scan", "eval", "stress", "campaign"])
@pytest.mark.parametrize("verb", MATRIX)
def test_a_verb_writes_into_new_folders_and_its_own_only(runs, verb, there):
    run, out = runs
    before = snapshot(out / there)
    if verb in (there, f"{there}:repeat_one"):
        run(verb, out / there)
        assert {*snapshot(out / there)} == {*before}
        return
    with pytest.raises(RunError, match="contains (a|an) .*choose another folder for --out"):
        run(verb, out / there)
    assert snapshot(out / there) == before


def test_a_stress_test_of_another_model_is_refused(runs, tiny_bert):
    out = runs[1] / "stress"
    before = snapshot(out)
    with pytest.raises(RunError, match="model .* there, .* asked for"):
        layerwise.lab.stress(
            tiny_bert, TEXTS, kind="repeat_one", levels=[0.25], metrics="curvature", out=out, threads=1
        )
    assert snapshot(out) == before


@pytest.mark.parametrize("verb", ["scan", "eval", "stress", "campaign"])
def test_results_without_a_marker_are_read_but_not_written(runs, tmp_path, verb):
    run, out = runs
    old = shutil.copytree(out / verb, tmp_path / "old")
    (old / MARKER).unlink()
    before = snapshot(old)
    assert len(layerwise.LayerTable.load(old))
    with pytest.raises(RunError, match="contains results without layerwise-run.json.*can be read"):
        run("stress:repeat_one" if verb == "stress" else verb, old)
    assert snapshot(old) == before


@pytest.mark.parametrize("data, why", [
    (b"{", "damaged"), (b"[]", "damaged"), (b'{"kind": "scan"}', "damaged"),
    (b'{"kind": "scan", "schema_version": 2}', "another version of layerwise .schema_version 2"),
])  # fmt: skip
def test_a_marker_that_cannot_be_understood_is_refused(tmp_path, data, why):
    (tmp_path / MARKER).write_bytes(data)
    with pytest.raises(RunError, match=why):
        claim(DiskFolder(tmp_path), "scan")


def test_of_two_that_claim_a_folder_at_once_one_wins(tmp_path, monkeypatch):
    """The other process writes its marker between our look and our write."""
    usual = DiskFolder.create

    def late(self, name, data):
        usual(self, name, json_bytes(with_checksum({"schema_version": 1, "kind": "eval"})))
        return usual(self, name, data)

    monkeypatch.setattr(DiskFolder, "create", late)
    with pytest.raises(RunError, match="contains an eval, not a scan"):
        claim(DiskFolder(tmp_path), "scan")
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER]


# 1.3: reading deletes nothing


def damaged(source, to):
    run = shutil.copytree(source, to)
    (state,) = run.glob("state-*.safetensors")
    state.write_bytes(state.read_bytes()[:-7])
    return run, state


def test_reading_a_damaged_run_deletes_nothing_and_names_the_file(runs, tiny_llama, tmp_path):
    run, state = damaged(runs[1] / "scan", tmp_path / "run")
    before = snapshot(run)
    with pytest.raises(RunError, match=state.name):
        layerwise.export(tiny_llama, 1, tmp_path / "small", transform="center", fit=run)
    assert snapshot(run) == before and not (tmp_path / "small").exists()


def test_comparing_a_damaged_run_deletes_nothing_and_names_the_file(runs, tmp_path):
    run, state = damaged(runs[1] / "scan", tmp_path / "run")
    before = snapshot(run)
    for read in (
        lambda: layerwise.compare([run, runs[1] / "scan"]),
        lambda: layerwise.plot([run, runs[1] / "scan"], figure="cka"),
    ):
        with pytest.raises(RunError, match=state.name):
            read()
    layerwise.report(run, html=tmp_path / "r.html")  # needs no state
    assert snapshot(run) == before


def test_a_scan_that_goes_on_passes_over_its_damaged_checkpoint(runs, tmp_path):
    run, state = damaged(runs[1] / "scan", tmp_path / "run")
    runs[0]("scan", run)
    assert state.read_bytes() == (runs[1] / "scan" / state.name).read_bytes()
    assert ours_in(run) == ours_in(runs[1] / "scan")


# 2.4: a state belongs to its plan


@pytest.mark.parametrize("other", [{"max_length": 5}, {"seed": 3}])
def test_a_state_of_another_plan_is_refused_also_when_no_shard_remains(runs, tiny_llama, tmp_path, other):
    layerwise.scan(tiny_llama, TEXTS, out=tmp_path / "other", **SCAN | other)
    run = shutil.copytree(runs[1] / "scan", tmp_path / "run")
    (state,) = run.glob("state-*")
    shutil.copy(tmp_path / "other" / state.name, state)
    before = snapshot(run)
    with pytest.raises(RunError, match=f"{state.name} in .* belongs to another run.*plan"):
        runs[0]("scan", run)
    assert snapshot(run) == before


def test_a_plan_is_created_exclusively(runs, tiny_llama, tmp_path, monkeypatch):
    """A scan with another plan claims the folder while ours loads its model: ours must notice."""
    usual = DiskFolder.create

    def late(self, name, data):
        if name == "plan.json":
            other = json.loads(data.replace(b'"shard_size": 4', b'"shard_size": 5'))
            del other["checksum"]
            usual(self, name, json.dumps(other).encode())
        return usual(self, name, data)

    monkeypatch.setattr(DiskFolder, "create", late)
    with pytest.raises(RunError, match="shard_size: 5 there, 4 asked for"):
        runs[0]("scan", tmp_path / "run")


# The law: no verb changes anything outside its output, or inside it what it did not write


AGAIN = [GOOD[i] for i in (0, 5, 6, 8, 9)]  # runs that go on, in folders into which the user has put files


def changes_of(desk, commands):
    """Runs the commands where the desk is, in a process with a home of its own; the paths that each changed."""
    environment = os.environ | {"HOME": str(desk / "home"), "TMPDIR": str(desk / "tmp"), "HF_HUB_OFFLINE": "0"}
    for name in ("HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "HF_DATASETS_CACHE", "MTEB_CACHE"):
        environment.pop(name, None)
    asked, answer = desk.parent / "asked.json", desk.parent / "answer.json"
    asked.write_text(json.dumps(commands), encoding="utf-8")
    words = [sys.executable, snapshots.__file__, str(asked), str(desk), str(answer)]
    done = subprocess.run(words, cwd=desk, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(answer.read_text(encoding="utf-8")), done.stderr


def forbidden(desk, changed, allowed, untouchable=()):
    """The changed paths that are neither an output of the command nor on the way to one."""
    roots = [desk / name for name in (*allowed, *UNASKED)]
    return [
        path for path in changed
        if path in untouchable or not any(Path(path) == root or root in Path(path).parents for root in roots)
        and not (Path(path).is_dir() and any(Path(path) in root.parents for root in roots))
    ]  # fmt: skip


def test_no_verb_changes_anything_but_its_output(tmp_path, reading_llama, tiny_bert, broken_llama):
    desk = desk_for(tmp_path / "desk", reading_llama, tiny_bert, broken_llama)
    assert {verb_of(words) for words, _ in GOOD} == set(commands())
    before = snapshot(desk)
    changes, stderr = changes_of(desk, [words for words, _ in (*GOOD, *BAD)])
    result = list(zip((*GOOD, *BAD), changes, strict=True))
    wrong = [(words, bad) for (words, allowed), c in result if (bad := forbidden(desk, c["changed"], allowed))]
    assert not wrong, "\n".join(map(str, wrong))
    online = [(words, c["network"]) for (words, _), c in result[: len(GOOD)] if c["network"]]
    assert not online, f"with local models and data, nothing is asked of the network: {online}"
    codes = [words for (words, _), c in result[: len(GOOD)] if c["code"] != 0]
    codes += [words for (words, _), c in result[len(GOOD) :] if c["code"] != 2]
    assert not codes, "\n".join([*map(str, codes), stderr[-5000:]])
    idle = [words for (words, allowed), c in result[: len(GOOD)] if allowed and not c["changed"]]
    assert not idle, idle
    after = snapshot(desk)
    assert {path: after[path] for path in before} == before

    decoys = [path for name in ("run", "stressed", "cells", "tasks/Mine", "scores") for path in put_decoys(desk / name)]
    (desk / "run" / "table.parquet").unlink()
    exactly_ours = ("state-00001.safetensors", "00000-00001.safetensors")  # names of our own files
    decoys = [path for path in decoys if Path(path).name not in exactly_ours]
    changes, stderr = changes_of(desk, [words for words, _ in AGAIN])
    for (words, allowed), change in zip(AGAIN, changes, strict=True):
        assert change["code"] == 0, (words, stderr[-3000:])
        assert not (wrong := forbidden(desk, change["changed"], allowed, decoys)), (words, wrong)

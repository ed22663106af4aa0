"""One writer per run folder: who holds it is named, and a holder that is gone does not block."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from snapshots import SCAN, TEXTS, run_verb, snapshot, write_root

import layerwise
from layerwise.core.errors import RunError
from layerwise.core.files import DiskFolder
from layerwise.runs.leases import LeaseLost, Leases, lease_files, sole_writer, while_held
from layerwise.runs.ownership import claim


@pytest.fixture
def folder(tmp_path):
    made = DiskFolder(tmp_path / "run")
    claim(made, "scan")
    return made


def of_another(folder, **changes):
    """Puts a lease into the folder as another process would have."""
    record = json.loads(Leases().content())
    process = record["process"] | changes
    folder.write("lease-00001.json", json.dumps(record | {"machine": "node-7", "process": process}).encode())


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_writer_is_told_who_holds_the_folder(folder):
    with sole_writer(folder):
        with pytest.raises(RunError, match=r"process \d+ on this machine is writing to .*run; wait until it has ended"):
            with sole_writer(folder):
                pass
        assert lease_files(folder) == ["lease-00001.json"]
    assert lease_files(folder) == []


def test_a_lease_of_a_process_that_has_ended_is_taken_over_at_once(folder):
    of_another(folder, pid=dead_process())
    with sole_writer(folder, Leases(patience=1e9)):
        assert lease_files(folder) == ["lease-00002.json"]


def test_a_lease_of_another_machine_is_taken_over_when_it_stays_silent(folder):
    of_another(folder, host="00000000")
    with sole_writer(folder, Leases(beat=0.01, patience=0.05)):
        assert lease_files(folder) == ["lease-00002.json"]


def test_a_writer_on_another_machine_is_named_once_it_shows_life(folder):
    of_another(folder, host="00000000", pid=4711)
    ended = threading.Event()

    def live():
        while not ended.wait(0.01):
            of_another(folder, host="00000000", pid=4711, beats=len(threading.enumerate()), n=id(object()))

    thread = threading.Thread(target=live)
    thread.start()
    try:
        with pytest.raises(RunError, match="process 4711 on node-7 is writing to"):
            with sole_writer(folder, Leases(beat=0.05, patience=1e9)):
                pass
    finally:
        ended.set()
        thread.join()


def test_a_damaged_lease_blocks_nobody_for_longer_than_the_patience(folder):
    folder.write("lease-00001.json", b"{")
    with sole_writer(folder, Leases(beat=0.01, patience=0.05)):
        pass


def test_who_has_lost_the_folder_stops_at_the_next_batch(folder):
    held = Leases()
    held.take(folder)
    held.lost.add(folder)
    with pytest.raises(LeaseLost, match="another process has taken over"):
        while_held(lambda: held.require(folder), lambda items, tokens=0: None)(1)


@pytest.mark.parametrize("verb", ["scan", "eval", "stress:repeat_one"])
def test_no_verb_writes_to_a_folder_that_another_process_holds(verb, tiny_llama, tmp_path):
    root, out = write_root(tmp_path / "root"), tmp_path / "out"
    run_verb(verb, tiny_llama, root, out)
    for name in ("run.json", "table.parquet"):
        (out / name).unlink()
    with sole_writer(DiskFolder(Path(out))):
        before = snapshot(out)
        with pytest.raises(RunError, match="on this machine is writing to"):
            run_verb(verb, tiny_llama, root, out)
        assert snapshot(out) == before
    run_verb(verb, tiny_llama, root, out)
    assert not list(out.rglob("lease-*"))


def test_two_scans_into_one_folder_are_one_scan_and_one_refusal(tiny_llama, tmp_path, monkeypatch):
    """The second begins while the first is at work on its first shard."""
    from layerwise.verbs.scan import shards as run
    from layerwise.verbs.scan import worker

    answers = []

    def shard(*args):
        if not answers:
            answers.append("")
            with pytest.raises(RunError, match="is writing to") as caught:
                layerwise.scan(tiny_llama, TEXTS, out=tmp_path / "run", **SCAN)
            answers.append(str(caught.value))
        return worker.scan_shard(*args)

    monkeypatch.setattr(run, "scan_shard", shard)
    table = layerwise.scan(tiny_llama, TEXTS, out=tmp_path / "run", **SCAN)
    assert len(answers) == 2 and len(table) == len(layerwise.LayerTable.load(tmp_path / "run"))

"""Outputs: existing files stay, unusable places are noticed before computing, and nothing is left behind."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from snapshots import SCAN, TEXTS, ours_in, put_decoys, snapshot, write_root

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import HOST_ID, DiskFolder, create_atomically, delete_abandoned, write_atomically
from layerwise.runs.ownership import MARKER, claim
from layerwise.verbs.export.run import require_new_folder, temporary_folder

# Single files: what is there is not replaced without a word


def pick_of(model="m"):
    from layerwise.core.recipe import Recipe
    from layerwise.runs.identity import ModelRef
    from layerwise.verbs.pick.result import Pick

    return Pick(ModelRef(model, fingerprint="fingerprint"), Recipe(1), Recipe(3), "a rule", ("why",))


@pytest.mark.parametrize("there", [b'{"favourite": 3}', b"[]", b"not JSON", b""])
def test_pick_replaces_its_own_file_only(runs, tmp_path, there, capsys):
    pick_of("first").save(tmp_path / "new")
    pick_of("second").save(tmp_path / "new")
    assert json.loads((tmp_path / "new" / "pick.json").read_bytes())["model"]["name"] == "second"
    (tmp_path / "pick.json").write_bytes(there)
    with pytest.raises(RunError, match="pick.json .* was not written by layerwise"):
        pick_of().save(tmp_path)
    assert main(["pick", str(runs[1] / "scan"), "--rule", "depth:50%", "--save", str(tmp_path)]) == 2
    assert (tmp_path / "pick.json").read_bytes() == there and not capsys.readouterr().out


def test_pick_saves_into_the_folder_of_a_run(runs, tmp_path):
    run = shutil.copytree(runs[1] / "scan", tmp_path / "run")
    before = snapshot(run)
    for rule in ("depth:50%", "last"):
        assert main(["pick", str(run), "--rule", rule, "--save", str(run)]) == 0
    after = snapshot(run)
    assert after.pop(str(run / "pick.json")) and after == before
    assert runs[0]("scan", run)  # the run still goes on


def test_tradeoff_replaces_its_own_file_only(runs, tmp_path):
    run = shutil.copytree(runs[1] / "eval", tmp_path / "run")
    for _ in range(2):
        layerwise.lab.tradeoff(run, repeats=1)
    assert json.loads((run / "tradeoff.json").read_bytes())["layers"]
    (run / "tradeoff.json").write_bytes(b"mine")
    before = snapshot(run)
    with pytest.raises(RunError, match="tradeoff.json .* was not written by layerwise"):
        layerwise.lab.tradeoff(run, repeats=1)
    assert snapshot(run) == before


def test_embed_writes_its_table_and_replaces_a_file_only_when_told_to(tiny_llama, word_texts, tmp_path):
    frame = layerwise.embed(tiny_llama, word_texts, layers="1", out=tmp_path / "v.parquet")
    assert pd.read_parquet(tmp_path / "v.parquet").text.tolist() == frame.text.tolist() == word_texts
    with pytest.raises(InputError, match="overwrite=True"):
        layerwise.embed("no such model", word_texts, out=tmp_path / "v.parquet")
    layerwise.embed(tiny_llama, word_texts[:7], layers="1", out=tmp_path / "v.parquet", overwrite=True)
    assert len(pd.read_parquet(tmp_path / "v.parquet")) == 7


@pytest.mark.parametrize("name", ["table.parquet", "run.json"])
def test_a_table_is_not_saved_over_a_file_of_the_user(runs, tmp_path, name):
    table = layerwise.LayerTable.load(runs[1] / "scan")
    for _ in range(2):
        table.save(tmp_path / "saved")
    (tmp_path / name).write_bytes(b"mine")
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match=f"{name} in .* was not written by layerwise"):
        table.save(tmp_path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_a_page_replaces_pages_only(runs, tmp_path, verb, capsys):
    run, page = str(runs[1] / "scan"), tmp_path / "page.html"
    command = [verb, run, *([run] if verb == "compare" else []), "--html", str(page)]
    for _ in range(2):
        assert main(command) == 0
    page.write_bytes(b"<html>my thesis</html>")
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err and page.read_bytes() == b"<html>my thesis</html>"
    assert main([*command, "--overwrite"]) == 0
    assert b'content="layerwise"' in page.read_bytes()


def test_a_figure_and_vectors_replace_nothing_unasked(runs, tiny_llama, tmp_path, capsys):
    figure, vectors, texts = (tmp_path / name for name in ("f.svg", "v.parquet", "t.txt"))
    texts.write_text("\n".join(TEXTS[:3]), encoding="utf-8")
    for file, command in (
        (figure, ["report", str(runs[1] / "scan"), "-o", str(figure)]),
        (vectors, ["embed", tiny_llama, "--data", str(texts), "--layers", "1", "--out", str(vectors)]),
    ):
        file.write_bytes(b"mine")
        assert main(command) == 2
        assert "--overwrite" in capsys.readouterr().err and file.read_bytes() == b"mine"
        assert main([*command, "--overwrite"]) == 0
        assert file.stat().st_size > 100


def test_a_prepared_task_is_written_into_new_folders_and_its_own_only(tmp_path):
    put_decoys(tmp_path / "Mine")
    before = snapshot(tmp_path)
    with pytest.raises(RunError, match="is not empty"):
        write_root(tmp_path)
    assert snapshot(tmp_path) == before
    for _ in range(2):
        write_root(tmp_path / "new")
    (tmp_path / "new" / "Mine" / MARKER).unlink()
    with pytest.raises(RunError, match="is not empty"):
        write_root(tmp_path / "new")


# 3.6: unusable outputs are noticed before anything is computed


@pytest.fixture
def idle(monkeypatch):
    """No model may be loaded."""

    def refuse(*args, **options):
        raise AssertionError("the model was loaded before the output was checked")

    names = ("verbs.export.api.open_network", "verbs.report.api.page", "verbs.compare.api.page")
    for name in ("models.opening.load_network", *names):
        monkeypatch.setattr(f"layerwise.{name}", refuse)


BAD_FILES = {"folder": "is a folder", "file/below": "is a file", "": "is empty", " ": "is empty"}
BAD_FOLDERS = {"file": "is a file|already exists", "file/below": "is a file", "": "is empty", " ": "is empty"}


def outputs(runs, model, texts):
    scan, evaluated = str(runs[1] / "scan"), str(runs[1] / "eval")
    data = ["--data", str(texts)]
    return {
        "embed": ["embed", model, *data, "--out"],
        "report": ["report", scan, "--html"],
        "plot": ["report", scan, "-o"],
        "compare": ["compare", scan, scan, "--html"],
        "pick": ["pick", model, "--fit", data[1], "--save"],
        "export": ["export", model, "--layer", "1", "--out"],
        "pick and export": ["pick", model, "--fit", data[1], "--export"],
        "scan": ["scan", model, *data, "--out"],
        "stress": ["lab", "stress", model, *data, "--kind", "repeat_one", "--out"],
        "eval": ["eval", model, "--tasks", "all", "--data-root", str(Path(evaluated).parents[1] / "root"), "--out"],
    }


CASES = [(verb, name) for verb in ("embed", "report", "plot", "compare") for name in BAD_FILES]
CASES += [
    (verb, name) for verb in ("pick", "export", "pick and export", "scan", "stress", "eval") for name in BAD_FOLDERS
]


@pytest.mark.parametrize("verb, name", CASES)
def test_an_unusable_output_is_noticed_before_computing(runs, tiny_llama, tmp_path, capsys, idle, verb, name):
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    before = snapshot(tmp_path)
    why = (BAD_FILES if verb in ("embed", "report", "plot", "compare") else BAD_FOLDERS)[name]
    out = str(tmp_path / name) if name.strip() else name
    assert main([*outputs(runs, tiny_llama, texts)[verb], out]) == 2
    assert re.search(why, capsys.readouterr().err)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("verb", ["embed", "report", "plot", "compare", "pick", "export", "scan", "stress", "eval"])
def test_a_read_only_place_is_noticed_before_computing(runs, tiny_llama, tmp_path, capsys, idle, small_disk, verb):
    texts = tmp_path / "t.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert main([*outputs(runs, tiny_llama, texts)[verb], str(small_disk / "new" / "out.svg")]) == 2
    assert f"cannot write into {small_disk} (Read-only file system)" in capsys.readouterr().err


def test_a_full_disk_is_a_clear_error_and_leaves_no_part(runs, tiny_llama, small_disk, capsys):
    (small_disk / "filler").write_bytes(b"x" * 50_000)
    with pytest.raises(InputError, match=r"cannot write .*r.html: No space left on device; free some space"):
        layerwise.report(runs[1] / "scan", html=small_disk / "r.html")
    with pytest.raises(InputError, match=r"cannot write .*run/\S+: No space left on device"):
        layerwise.scan(tiny_llama, TEXTS, out=small_disk / "run", **SCAN | {"metrics": "fast"})
    left = [path.name for path in small_disk.rglob("*") if path.is_file()]
    assert "filler" in left and not [name for name in left if name.startswith(".") or name == "r.html"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    write_atomically(tmp_path / "a", b"old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="cannot write .*a: No space left on device"):
        write_atomically(tmp_path / "a", b"new")
    with pytest.raises(InputError, match="cannot write .*b: No space left on device"):
        DiskFolder(tmp_path).create("b", b"new")
    assert snapshot(tmp_path) == {str(tmp_path / "a"): hashlib.sha256(b"old").hexdigest()}


def test_the_loser_of_two_exports_is_told(tiny_llama, tmp_path, monkeypatch):
    from layerwise.verbs.export import run as exporter

    def meanwhile(*args):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("first")
        return usual(*args)

    usual = exporter.certify
    monkeypatch.setattr(exporter, "certify", meanwhile)
    with pytest.raises(
        InputError, match="out was created by another process in the meantime, so this export was deleted"
    ):
        layerwise.export(tiny_llama, 1, tmp_path / "out")
    assert ours_in(tmp_path) == {"out/theirs"} and [path.name for path in tmp_path.iterdir()] == ["out"]


# 4.4: nothing is left behind

KILLED_EXPORT = """
import os, signal, sys
import layerwise
from layerwise.verbs.export import run
run.certify = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
layerwise.export(sys.argv[1], 1, sys.argv[2])
"""


@pytest.mark.long
def test_what_a_killed_export_left_is_deleted_by_the_next_to_that_name(tiny_llama, tmp_path):
    out = tmp_path / "out"
    ended = subprocess.run([sys.executable, "-c", KILLED_EXPORT, tiny_llama, str(out)], capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.")
    with temporary_folder(out):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_half_written_files_of_ended_processes_are_deleted_in_marked_folders_only(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    names = {
        f"prompts/.00000.parquet.{HOST_ID}-{int(ended.stdout)}-0123abcd.layerwise": False,
        f"prompts/.00000.parquet.{HOST_ID}-{os.getpid()}-0123abcd.layerwise": True,
        f"prompts/.00000.parquet.{'0' * 8}-{int(ended.stdout)}-0123abcd.layerwise": True,  # of another machine
        ".notes.layerwise": True,
        "prompts/.mine.0123abcd": True,
    }
    claim(DiskFolder(tmp_path), "scan")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    claim(DiskFolder(tmp_path), "scan")
    assert {name: (tmp_path / name).exists() for name in names} == names


BUSY = """
import sys, time
from layerwise.engines.local import local_processes
import busy_call
if __name__ == "__main__":
    with local_processes(2) as processes:
        for _ in processes.results(busy_call.long, [(sys.argv[1], 1), (sys.argv[1], 2)]):
            pass
"""
CALL = """
import os, time
def long(folder, number):
    open(os.path.join(folder, f"{number}.pid"), "w").write(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_workers_end_with_the_process_that_started_them(tmp_path, how):
    (tmp_path / "busy.py").write_text(BUSY)
    (tmp_path / "busy_call.py").write_text(CALL)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "busy.py"), str(tmp_path)], stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until(lambda: len([p for p in tmp_path.glob("*.pid") if p.read_text()]) == 2)
        workers = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
        parent.send_signal(how)
        parent.wait(60)
        until(lambda: not any(map(is_running, workers)))
    finally:
        parent.kill()
        for path in tmp_path.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def test_termination_unwinds_like_an_interrupt(monkeypatch, capsys):
    from layerwise.verbs.lab.views import command as views

    unwound = []

    def run(args):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            unwound.append(True)

    monkeypatch.setattr(views, "run", run)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # another test may have left a handler, as Ray does
    try:
        assert main(["lab", "views", "text"]) == 143 and unwound
        assert "interrupted" in capsys.readouterr().err
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
def test_where_a_disk_has_no_links_a_file_is_still_created_by_one_process_only(tmp_path, monkeypatch, number):
    def no_links(source, target):
        raise OSError(number, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    assert create_atomically(tmp_path / "lease", b"first")
    assert not create_atomically(tmp_path / "lease", b"second")
    assert (tmp_path / "lease").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["lease"], "no temporary file is left"


def ended_process():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_only_what_ended_processes_were_writing_is_deleted(tmp_path):
    ended = ended_process()
    deleted = {f".small.{HOST_ID}-{ended}-0123abcd.layerwise", f".small.{HOST_ID}-{ended}-4567abcd.layerwise"}
    kept = {
        f".small.{HOST_ID}-{os.getpid()}-0123abcd.layerwise",
        f".small.{'0' * 8}-{ended}-0123abcd.layerwise",  # of another machine
        f".other.{HOST_ID}-{ended}-0123abcd.layerwise",
        f".small.{HOST_ID}-{10**30}-0123abcd.layerwise",  # of no process
        ".small.layerwise",
        ".small.mine",
    }
    for name in deleted | kept:
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text("precious")
    (tmp_path / f".small.{HOST_ID}-{ended}-89ababcd.layerwise").write_text("a file")
    delete_abandoned(tmp_path / "small")
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_a_file_is_written_without_what_a_killed_process_left_of_it(tmp_path):
    left = tmp_path / f".pick.json.{HOST_ID}-{ended_process()}-0123abcd.layerwise"
    left.write_text("{")
    write_atomically(tmp_path / "pick.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["pick.json"]


def test_a_folder_that_is_there_is_refused_without_what_a_killed_export_left_beside_it(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / f".out.{HOST_ID}-{ended_process()}-0123abcd.layerwise").mkdir()
    with pytest.raises(InputError, match="out already exists"):
        require_new_folder(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

"""Kills at every step of the commands that write: a sample of each change, all of them in .ci/run --full."""

import csv
import os
import re
import subprocess
import sys

import pytest
from places import ROOT

from abuse import points
from abuse.desk import WRITERS

QUICK = "pick,scan,embed,scan that was killed before"
NOT_ATOMIC = """
from pathlib import Path
from layerwise.core import files
files.write_atomically = lambda path, data: (path.parent.mkdir(parents=True, exist_ok=True), path.write_bytes(data))
"""
FORGOTTEN = """
from layerwise.core import files
files.delete_abandoned = lambda path: None
"""
RUN = """
import sys
sys.path.insert(0, "tests")
from abuse.campaign import main
sys.exit(main(sys.argv[1:], "no such home"))
"""


def kill(tmp_path, *words, fault=""):
    """What a visit of points prints, and its list."""
    out = tmp_path / "points.csv"
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    home = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", fault + RUN, *words, "--results", str(out)],
        cwd=ROOT, env=os.environ | home | {"PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    return done, rows_of(out) if out.exists() else []


def rows_of(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_killed_at_any_step_a_command_continues(tmp_path):
    done, rows = kill(tmp_path, "--points", QUICK, "--quick", "--every", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["command"] for row in rows} == {*QUICK.split(",")} and len(rows) > 12
    assert {row["result"] for row in rows} == {"continues"}


@pytest.mark.long
@pytest.mark.parametrize("fault, noticed", [(NOT_ATOMIC, "cannot be repeated"), (FORGOTTEN, "temporary file left")])
def test_a_planted_fault_is_noticed(fault, noticed, tmp_path):
    done, _ = kill(tmp_path, "--points", "pick", "--quick", fault=fault)
    assert done.returncode == 1 and noticed in done.stdout, done.stdout + done.stderr


@pytest.mark.long
def test_killed_at_every_step_every_command_continues(tmp_path):
    done, rows = kill(tmp_path, "--points", "all")
    assert done.returncode == 0 and len(rows) > 400, done.stdout + done.stderr


def test_every_command_that_writes_is_killed_and_the_list_of_visits_has_no_failure():
    names = {command.name for command in points.COMMANDS}
    without_output = {name for name, (_, outputs) in WRITERS.items() if not outputs}
    assert names >= {*WRITERS} - without_output - {"eval in processes"}
    rows = rows_of(points.RESULTS)
    assert len(rows) > 300 and {row["command"] for row in rows} <= names
    assert {row["result"] for row in rows} == {"continues"}
    assert not [row["point"] for row in rows if re.search(r"[0-9a-f]{16}", row["point"])], (
        "names that are new each time"
    )

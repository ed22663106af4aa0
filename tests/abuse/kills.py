"""Kills: a signal at a random moment of every verb that writes, and disks that fill up or become read-only half-way.

Afterwards the same command is given again: its result must be that of a run that nobody disturbed.
"""

import os
import random
import signal
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from abuse import forked, oracles
from abuse.desk import WRITERS, Case, Workshop, differences, result_of

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
CODES = (0, 1, 2, 130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
NAMES = [name for name in WRITERS if name not in ("audit", "eval in processes")]  # starting processes takes a minute


def case(workshop: Workshop, draw: random.Random) -> Case:
    name = draw.choice(NAMES)
    words, outputs = WRITERS[name]
    expected = workshop.undisturbed(name, words, outputs)
    desk = workshop.fresh()
    if os.geteuid() == 0 and "new" in words and draw.random() < 0.15:
        return failing_disk(workshop, draw, desk, name, words, expected)
    before = oracles.tree_of(desk)
    problems, printed, moments = [], "", []
    kills = draw.choice([1, 1, 2, 3])
    for _ in range(kills):
        number, group = draw.choice(SIGNALS), draw.random() < 0.3
        moment = draw.random() ** 0.7 * workshop.seconds[name]
        child = forked.start(words, desk, workshop.streams)
        time.sleep(moment)
        child.signal(number, group)
        outcome = child.wait(90, patience=8.0)
        printed += outcome.err[-2000:]
        problems += oracles.all_of(outcome, CODES)
        moments.append(f"{signal.Signals(number).name} at {moment:.2f} s")
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), [*outputs, *beside(desk, outputs)])
    again = forked.run(words, desk, workshop.streams, 120)
    problems += finished(again, desk, outputs, expected, name)
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), outputs)
    problems += oracles.half_written(desk)
    return Case(f"{name}: {', '.join(moments)}", problems, count=kills, printed=printed + again.err[-3000:])


def beside(desk: Path, outputs: Sequence[str]) -> list[str]:
    """Half-written files beside the outputs, which a killed process may leave until the next run."""
    found = []
    for name in outputs:
        folder = (desk / name).parent
        found += [str(p.relative_to(desk)) for p in folder.glob(f".{Path(name).name}*")]
    return [*found, *(str(p.relative_to(desk)) for p in (desk / "tmp").glob("*"))]


def finished(
    again: forked.Outcome, desk: Path, outputs: Sequence[str], expected: dict[str, str], name: str
) -> list[str]:
    """What is wrong with the run that followed."""
    problems = oracles.all_of(again, (0, 2))
    found = result_of(desk, outputs)
    wanted = {k: v for k, v in expected.items() if k != "stdout"}
    if (
        again.code == 2 and "already exists" in again.err or "is not empty" in again.err
    ):  # an export: complete or absent
        return problems + differences(wanted, found)
    if again.code != 0:
        return [*problems, f"cannot be repeated: {oracles.last_line(again.err)}"]
    return problems + differences(wanted, found)


def failing_disk(
    workshop: Workshop, draw: random.Random, desk: Path, name: str, words: Sequence[str], expected: dict[str, str]
) -> Case:
    """A small file system in place of the output's folder: it fills up, becomes read-only at a random moment, or its
    owner takes back the permission to write."""
    disk = desk / "disk"
    disk.mkdir()
    moved = ["disk/new" if word == "new" else word for word in words]
    drawn = draw.random()
    how = "becomes read-only" if drawn < 0.25 else "may no longer be written to" if drawn < 0.5 else "fills up"
    size = draw.choice([4096, 16384, 65536, 131072, 262144]) if how == "fills up" else 1 << 24
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True)
    try:
        child = forked.start(moved, desk, workshop.streams, unprivileged=True)
        if how != "fills up":
            time.sleep(draw.random() * workshop.seconds[name])
        if how == "becomes read-only":
            subprocess.run(["mount", "-o", "remount,ro", disk], capture_output=True)
        modes = take_permissions(disk) if how == "may no longer be written to" else {}
        outcome = child.wait(90)
        problems = oracles.all_of(outcome)
        problems += oracles.names_no_cause(outcome, ["disk", "space", "read-only", "permission"])
        subprocess.run(["mount", "-o", "remount,rw,size=64m", disk], check=True)
        for folder, mode in modes.items():
            if folder.exists():
                folder.chmod(mode)
        again = forked.run(moved, desk, workshop.streams, 120)
        wanted = {f"disk/{k}": v for k, v in expected.items() if k.startswith("new")}
        problems += finished(again, desk, ["disk/new"], wanted, name)
        problems += oracles.half_written(disk)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    what = f"{name}: a disk of {size} bytes that {how}"
    return Case(what, problems, printed=outcome.err[-2000:] + again.err[-3000:])


def take_permissions(disk: Path) -> dict[Path, int]:
    """Makes every folder on a disk unwritable; returns their modes before."""
    modes = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in [disk, *disk.rglob("*")] if folder.is_dir()}
    for folder in modes:
        if folder.exists():
            folder.chmod(0o500)
    return modes

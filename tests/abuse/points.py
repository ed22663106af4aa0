"""Points: every command that writes is killed at each of its steps on the file system, and then given again.

`python -m tests.abuse --points` visits all of them and writes points.csv.

A step is a file that is created or written, a rename, a link, a deletion, a folder that is made or deleted. Python
reports them to audit hooks, whichever library takes them, so nothing in layerwise knows of these points. A process is
killed just before a step. If files have changed since the step before, it is killed once more with the first half of
each of them: so it would have been found if it had been killed while it wrote that file.
"""

import csv
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from abuse import forked, kills, oracles
from abuse.desk import WRITERS, Workshop, comparable, result_of

VISITS = 2  # of each point: more of them are the same step for the next shard, task or layer, or of another command
RESULTS = Path(__file__).parent / "points.csv"
EVENTS = {
    "open": "write", "os.rename": "rename to", "os.link": "link to", "os.remove": "delete", "os.mkdir": "make folder",
    "os.rmdir": "delete folder", "os.truncate": "truncate",
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SOURCES = f"{os.sep}layerwise{os.sep}"
CACHES = tuple(name for name in oracles.UNASKED if "layerwise" not in name)  # of libraries
# Names that are new each time: of half-written files, of folders for temporary files, numbers and hashes.
CHANGING = [
    (re.compile(r"\.[^/]{1,50}\.[0-9a-f]{8}-\d+-[0-9a-f]{8}\.layerwise"), "TEMPORARY"),
    (re.compile(r"(?<=/)(\.[\w.]+\.|tmp)[a-z0-9_]{8}(?=/|$)"), r"\1*"),
    (re.compile(r"(?<=^/tmp/)[a-z0-9_]{8}$"), "*"),
    (re.compile(r"[0-9a-f]{16,}"), "*"),
    (re.compile(r"\d+"), "*"),
]
HALF = "half of "


@dataclass(frozen=True)
class Command:
    """A command that is killed: what it writes, and how often it was killed or run before."""

    name: str
    words: Sequence[str]
    outputs: Sequence[str]
    before: Sequence[tuple[Sequence[str], str]] = ()  # commands that come first, and the point at which each is killed


SCAN, SCORES = WRITERS["scan"][0], WRITERS["eval"][0]
SHARD = "rename to new/shards/*-*.safetensors in engines/checkpoints.py write"
COMMANDS = [
    Command("scan that was killed before", SCAN, ["new"], [(SCAN, SHARD)]),
    *(Command(name, *WRITERS[name]) for name in kills.NAMES),
    Command("scan that has finished", ["scan", "model", *SCAN[2:-1], "new"], ["new"], [(SCAN, "")]),
    Command("eval with more layers", SCORES, ["new"], [([*SCORES[:-3], "1", "--out", "new"], "")]),
    Command("report again", WRITERS["report"][0], ["new.html"], [(["report", "run", "--html", "new.html"], "")]),
    Command("pick again", WRITERS["pick"][0], ["new"], [(["pick", "run", "--rule", "last", "--save", "new"], "")]),
]  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A step of a command, its number among the steps of that name, and what is cut in half before."""

    step: str
    visit: int
    half: str = ""

    def __str__(self) -> str:
        return f"{HALF}{self.half}, {self.step}" if self.half else self.step


# ---- in the child


def at_each_step(desk: Path, visited: Callable[[str], None]) -> None:
    """Calls a function before each step on a file below the desk, in whatever thread. It cannot be taken back."""
    busy, caches = False, tuple(f"{desk}/{name}" for name in CACHES)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal busy
        if busy or event not in EVENTS or (event == "open" and not opens_for_writing(*args)):
            return
        target = args[1] if event in ("os.rename", "os.link") else args[0]
        if not isinstance(target, str | bytes | os.PathLike):  # a descriptor: of a file that was opened before
            return
        busy = True
        try:
            folder = args[1] if event in ("os.remove", "os.rmdir") else args[2] if event == "os.mkdir" else -1
            base = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd()
            path = os.path.normpath(os.path.join(base, os.fsdecode(target)))
            if is_step(event, path) and path.startswith(f"{desk}/") and not path.startswith(caches):
                place = place_of(Path(path), desk)
                if place != "tmp/*":  # with a file of this name, Python tries whether it may write there
                    visited(f"{EVENTS[event]} {place} in {caller()}")
        finally:
            busy = False

    sys.addaudithook(hook)


def is_step(event: str, path: str) -> bool:
    """False where nothing changes: a folder that is there already, a file that is gone, an unnamed temporary file."""
    if event == "os.mkdir":
        return not os.path.lexists(path)
    return os.path.lexists(path) if event in ("os.remove", "os.rmdir") else event != "open" or not os.path.isdir(path)


def opens_for_writing(path: Any, mode: str | None, flags: int) -> bool:
    return bool(flags & WRITING if isinstance(flags, int) else mode and set(mode) & set("wax+"))


def place_of(path: Path, desk: Path) -> str:
    """The path of a file without what changes from one run to the next."""
    name = f"/{path.relative_to(desk)}"
    for pattern, instead in CHANGING:
        name = pattern.sub(instead, name)
    return name[1:]


def caller() -> str:
    """The function of layerwise that takes the step; not the one that writes any file."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if SOURCES in file and not file.endswith("core/files.py"):
            return f"{file.rpartition(SOURCES)[2]} {frame.f_code.co_name}"
        frame = frame.f_back
    return "a library"


def steady() -> None:
    """Everything that comes with time comes with each shard: checkpoints, and signs of life of a lease."""
    from layerwise.engines.merging import MergeTree
    from layerwise.runs.leases import Leases

    save, require = MergeTree.save, Leases.require

    def sign_and_require(self: Leases, folder: Any) -> None:
        self.beats += 1
        self._sign(folder, self.held[folder])
        require(self, folder)

    patch.object(MergeTree, "save", lambda self, *, force=False: save(self, force=True)).start()
    patch.object(Leases, "require", sign_and_require).start()
    patch.object(Leases, "_keep_alive", lambda self: None).start()


def recorder(desk: Path, report: Path) -> Callable[[], None]:
    """Writes down each step, and which files have changed since the one before."""

    def first() -> None:
        steady()
        file, before = report.open("w", encoding="utf-8"), files_of(desk)

        def visited(step: str) -> None:
            nonlocal before
            now = files_of(desk)
            halves = {place_of(Path(path), desk) for path in written(before, now)}
            before = now
            file.write("\t".join([step, *sorted(halves)]) + "\n")
            file.flush()

        at_each_step(desk, visited)

    return first


def written(before: oracles.Tree, now: oracles.Tree) -> Iterator[str]:
    """The files with new content; not those that only have a new name or one more."""
    known = {status[3]: status[1:3] for status in before.values()}
    for path, status in now.items():
        if known.get(status[3]) != status[1:3] and status[1]:
            yield path


def killer(desk: Path, point: Point) -> Callable[[], None]:
    def first() -> None:
        steady()
        count = 0

        def visited(step: str) -> None:
            nonlocal count
            count += step == point.step
            if step != point.step or count < point.visit:
                return
            if point.half:
                cut_in_half(desk, point.half)
            os.kill(os.getpid(), signal.SIGKILL)

        at_each_step(desk, visited)

    return first


def cut_in_half(desk: Path, place: str) -> None:
    """Cuts the file that was written last at a place."""
    found = [(status[2], path) for path, status in files_of(desk).items() if place_of(Path(path), desk) == place]
    path = max(found)[1]
    os.truncate(path, os.path.getsize(path) // 2)


def files_of(desk: Path) -> oracles.Tree:
    """The files below a desk that are not of libraries."""
    skipped = tuple(f"{desk}/{name}" for name in CACHES)
    return {path: status for path, status in oracles.tree_of(desk).items()
            if len(status) > 1 and not path.startswith(skipped)}  # fmt: skip


# ---- in the parent


def points_of(workshop: Workshop, command: Command, known: Counter[str]) -> list[Point]:
    """The points of a command, in the order in which they come, without those that were visited often enough.

    `known` counts the visits of each point by earlier commands, and of this one.
    """
    desk = prepared(workshop, command)
    report = workshop.streams / "points"
    forked.start(command.words, desk, workshop.streams, first=recorder(desk, report)).wait(240)
    counts: Counter[str] = Counter()
    found = []
    for line in report.read_text(encoding="utf-8").splitlines():
        step, *halves = line.split("\t")
        counts[step] += 1
        for half in (*halves, ""):
            point = Point(step, counts[step], half)
            known[str(point)] += 1
            if known[str(point)] <= VISITS:
                found.append(point)
    return found


def prepared(workshop: Workshop, command: Command) -> Path:
    """A desk on which the commands that come first were run, or killed."""
    desk = workshop.fresh()
    for words, step in command.before:
        child = forked.start(words, desk, workshop.streams, first=killer(desk, Point(step, 2)) if step else steady)
        outcome = child.wait(240)
        if outcome.code != (-signal.SIGKILL if step else 0):
            raise RuntimeError(f"{command.name}: {words} ended with {outcome.code}: {outcome.err}")
    return desk


def expected_of(workshop: Workshop, command: Command) -> dict[str, str]:
    if not command.before:
        return dict(workshop.undisturbed(command.name, command.words, command.outputs))
    desk = prepared(workshop, command)
    outcome = forked.run(command.words, desk, workshop.streams, 240)
    if outcome.code:
        raise RuntimeError(f"{command.name}: {outcome.err}")
    return result_of(desk, command.outputs)


def visit(workshop: Workshop, command: Command, point: Point, expected: dict[str, str]) -> list[str]:
    """What is wrong after a kill at a point, or after the same command was given again."""
    desk = prepared(workshop, command)
    before, earlier = oracles.tree_of(desk), whole_results(desk, command.outputs)
    outcome = forked.start(command.words, desk, workshop.streams, first=killer(desk, point)).wait(120, patience=8.0)
    if outcome.code != -signal.SIGKILL:
        return [f"was not reached: ended with {outcome.code}: {oracles.last_line(outcome.err)}"]
    left = [*command.outputs, *kills.beside(desk, command.outputs)]
    problems = oracles.changed_outside(desk, before, oracles.tree_of(desk), left)
    for name, found in whole_results(desk, command.outputs).items():
        if found not in (expected.get(name), earlier.get(name)):
            problems.append(f"a partial result is taken for a whole one: {name}")
    own = put_own_files(desk, command.outputs)
    again = forked.start(command.words, desk, workshop.streams).wait(240)
    changed = [path for path, data in own.items() if not path.is_file() or path.read_bytes() != data]
    problems += [f"a file of the user was lost: {path.relative_to(desk)}" for path in changed]
    for path in own:
        path.unlink(missing_ok=True)
    problems += kills.finished(again, desk, command.outputs, expected, command.name)
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), command.outputs)
    return problems + oracles.half_written(desk)


def whole_results(desk: Path, outputs: Iterable[str]) -> dict[str, str]:
    """What somebody who reads the outputs now would take for a result, by file."""
    from layerwise import LayerTable
    from layerwise.core.errors import LayerwiseError

    found: dict[str, str] = {}
    for name in outputs:
        path = desk / name
        if path.is_file() or (path / "layerwise.json").is_file():  # a page, a figure, vectors; an exported model
            found |= result_of(desk, [name])
        for table in path.rglob("table.parquet") if path.is_dir() else []:
            try:
                LayerTable.load(table.parent)
            except LayerwiseError:
                continue
            if comparable(table) is not None:
                found |= result_of(desk, [str(table.relative_to(desk))])
    return found


def put_own_files(desk: Path, outputs: Iterable[str]) -> dict[Path, bytes]:
    """Files that a user puts into the marked folders, with names that look like ours."""
    own = {}
    for marker in [path for name in outputs for path in (desk / name).rglob("layerwise-run.json")]:
        for name in ("notes.txt", ".hidden", "state-01.csv", "state-00002.safetensors.bak", "shards/notes.txt"):
            path = marker.parent / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"mine")
            own[path] = b"mine"
    return own


def all_visits(workshop: Workshop, names: Sequence[str], every: int) -> Iterator[tuple[Command, Point, list[str]]]:
    """Every so many points of the commands."""
    known: Counter[str] = Counter()
    for command in COMMANDS:
        if not names or command.name in names:
            expected = expected_of(workshop, command)
            points = points_of(workshop, command, known)
            for point in points[::every]:
                yield command, point, visit(workshop, command, point, expected)


def run_points(workshop: Workshop, names: Sequence[str], every: int, results: Path) -> int:
    """Visits points, prints what is wrong, and writes the list of all visits as they come."""
    wrong, seen, count = 0, set(), 0
    with results.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["command", "point", "visit", "result"])
        for command, point, problems in all_visits(workshop, names, every):
            table.writerow([command.name, point, point.visit, "; ".join(problems) or "continues"])
            file.flush()
            seen.add(str(point))
            count += 1
            if problems:
                wrong += 1
                print(f"FAILED {command.name}, killed before: {point} (visit {point.visit})")
                print("\n".join(f"    {problem}" for problem in problems), flush=True)
    print(f"points: {count:,} visits of {len(seen):,} points, {wrong} failures", flush=True)
    return int(wrong > 0)

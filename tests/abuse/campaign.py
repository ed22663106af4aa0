"""The loop of the campaign: draws cases by seed and number, holds each against its oracles, and counts.

    python -m tests.abuse --minutes 60 --seed 1 --kinds damage,kills
    python -m tests.abuse --seed 1 --kinds damage --case 137          # repeats one case and shows what it printed

A case depends only on its kind, the seed and its number.
"""

import argparse
import datetime
import math
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from abuse import arguments, concurrency, damage, hostile, inputs, kills, points, sequences, stores
from abuse.desk import PREPARED, READERS, REBUILT, WRITERS, Case, Workshop, differences, make_models, warm
from abuse.faults import run_faults
from abuse.oracles import outputs_of

NUMBERED: dict[str, Callable[[Workshop, int, int], Case]] = {"pairs": arguments.pair_case}  # by seed and number
DRAWN: dict[str, Callable[[Workshop, random.Random], Case]] = {
    "inputs": inputs.case,
    "arguments": arguments.case,
    "damage": damage.case,
    "sequences": sequences.case,
    "kills": kills.case,
    "stores": stores.case,
    "concurrency": concurrency.case,
    "hostile": hostile.case,
}
KINDS = [*DRAWN, *NUMBERED]
UNITS = {
    "inputs": "odd texts",
    "arguments": "argument combinations",
    "pairs": "argument combinations with new pairs",
    "damage": "damages",
    "sequences": "sequences of commands",
    "kills": "kills and failing disks",
    "stores": "vanished stores",
    "concurrency": "concurrent pairs",
    "hostile": "hostile models, runs, data and campaigns",
}
RESULTS = Path(__file__).parent / "results.csv"


@dataclass
class Tally:
    """The counts of one kind."""

    cases: int = 0
    count: int = 0
    failures: int = 0
    seconds: float = 0.0


def main(argv: Sequence[str], home: str) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.abuse", description=__doc__)
    parser.add_argument("--minutes", type=float, help="4 unless --cases is given")
    parser.add_argument("--cases", type=int, help="so many cases of each kind, or as many as --minutes allow")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--case", help="run this one case, or several with commas, and show what they printed")
    parser.add_argument("--faults", action="store_true", help="plant ten faults, and see whether they are noticed")
    parser.add_argument("--check", action="store_true", help="run every undisturbed command twice and compare")
    parser.add_argument("--points", help="kill these commands (with commas; or all) at each of their steps")
    parser.add_argument("--every", type=int, default=1, help="with --points, visit one step of so many")
    parser.add_argument("--quick", action="store_true", help="prepare one scan only; for --points that need no more")
    parser.add_argument("--results", type=Path, help="file for the counts (appended), or for the list of --points")
    args = parser.parse_args(argv)
    kinds = args.kinds.split(",")
    if unknown := {*kinds} - {*KINDS}:
        parser.error(f"no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        try:
            workshop = open_workshop(Path(folder), quick=args.quick)
            if args.faults:
                return run_faults(workshop)
            if args.points:
                names = [] if args.points == "all" else args.points.split(",")
                return points.run_points(workshop, names, args.every, args.results or points.RESULTS)
            if args.check:
                return check(workshop)
            if args.case is not None:
                numbers = map(int, args.case.split(","))
                return max([show(workshop, kinds[0], args.seed, number) for number in numbers])
            tallies = attack(workshop, kinds, args.seed, minutes=args.minutes, cases=args.cases)
        finally:
            shutil.rmtree(home, ignore_errors=True)
    write_results(args.results or RESULTS, args.seed, tallies)
    return int(any(tally.failures for tally in tallies.values()))


def open_workshop(folder: Path, *, quick: bool = False) -> Workshop:
    if not quick:
        warm()
    workshop = Workshop(folder / "workshop")
    workshop.prepare(make_models(folder / "models"), PREPARED[:1] if quick else PREPARED)
    return workshop


def run_case(workshop: Workshop, kind: str, seed: int, number: int) -> Case:
    try:
        if kind in NUMBERED:
            return NUMBERED[kind](workshop, seed, number)
        return DRAWN[kind](workshop, random.Random(f"{seed} {kind} {number}"))
    except Exception:
        return Case("the campaign itself failed", [traceback.format_exc()[-1500:]])


def show(workshop: Workshop, kind: str, seed: int, number: int) -> int:
    case = run_case(workshop, kind, seed, number)
    print(f"{kind} {number}: {case.what}\n{case.printed}")
    print("\n".join(case.problems) or "nothing is wrong", flush=True)
    return int(bool(case.problems))


def check(workshop: Workshop) -> int:
    """Runs every reference twice: an oracle that differs from itself would accuse the innocent."""
    wrong = 0
    for name, words, outputs in references():
        try:
            first = workshop.undisturbed(name, words, outputs)
            workshop.results.pop(name)
            problems = differences(first, workshop.undisturbed(name, words, outputs))
        except RuntimeError as error:
            problems = [str(error)]
        print(f"{name} ({workshop.seconds.get(name, 0):.1f} s): {'; '.join(problems) or 'steady'}", flush=True)
        wrong += bool(problems)
    return int(wrong > 0)


def references() -> Iterator[tuple[str, list[str], list[str]]]:
    for name, (words, outputs) in WRITERS.items():
        yield name, words, outputs
    for name, words in READERS.items():
        yield f"read by {name}", words, [*outputs_of(words), *REBUILT.get(name, [])]


def attack(
    workshop: Workshop, kinds: Sequence[str], seed: int, *, minutes: float | None = None, cases: int | None = None
) -> dict[str, Tally]:
    """Runs cases of the kinds in turn, each kind for the same time; prints every failure at once."""
    tallies = {kind: Tally() for kind in kinds}
    until = time.monotonic() + 60 * (minutes or (4.0 if cases is None else math.inf))
    while (left := [k for k in kinds if cases is None or tallies[k].cases < cases]) and time.monotonic() < until:
        kind = min(left, key=lambda k: tallies[k].seconds)
        tally, began = tallies[kind], time.monotonic()
        case = run_case(workshop, kind, seed, tally.cases)
        if case.problems:
            report(kind, seed, tally.cases, case)
            tally.failures += 1
        tally.cases += 1
        tally.count += case.count
        tally.seconds += time.monotonic() - began
        if tally.cases % 100 == 0:
            print(f"{kind}: {tally.cases:,} cases, {tally.failures} failures so far", file=sys.stderr, flush=True)
    for kind, tally in tallies.items():
        print(f"{kind}: {tally.count:,} {UNITS[kind]} in {tally.cases:,} cases, {tally.failures} failures, "
              f"{tally.seconds / 60:.1f} min", flush=True)  # fmt: skip
    return tallies


def report(kind: str, seed: int, number: int, case: Case) -> None:
    print(f"FAILED {kind} {number}: {case.what}")
    for problem in case.problems:
        print(f"    {problem}")
    print(f"    python -m tests.abuse --kinds {kind} --seed {seed} --case {number}", flush=True)


def write_results(path: Path, seed: int, tallies: dict[str, Tally]) -> None:
    """Appends a line per kind: date, kind, seed, cases, attacks, failures, minutes."""
    if not path.exists():
        path.write_text("date,kind,seed,cases,count,failures,minutes\n", encoding="utf-8")
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    with path.open("a", encoding="utf-8") as file:
        for kind, tally in tallies.items():
            file.write(f"{day},{kind},{seed},{tally.cases},{tally.count},{tally.failures},{tally.seconds / 60:.1f}\n")
    print(f"counts appended to {path}", file=sys.stderr)

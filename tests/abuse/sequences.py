"""Sequences: several commands on one folder, killed at some step or with a file damaged in between, then all again.

The damage knows the formats: what it leaves is mostly valid JSON, Parquet or safetensors with another meaning. Whoever
also makes the checksum right cannot be noticed; then only crashes and changes outside the output count.
"""

import io
import json
import os
import random
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from abuse import arguments, forked, kills, oracles, points
from abuse.desk import WRITERS, Case, Workshop, differences, result_of

Command = tuple[Sequence[str], Sequence[str]]  # its words, and what it writes
PICK = ["pick", "new", "--rule", "depth:50%", "--save", "new"]
PAGE = (["report", "new", "--html", "new.html"], ["new.html"])
STORIES: dict[str, list[Command]] = {
    "scan": [WRITERS["scan"], (PICK, ["new/pick.json"]), PAGE, (["compare", "new", "deep/er/run"], [])],
    "scan and map": [
        WRITERS["scan"],
        (["export", "model", "--layer=1", "--transform=center", "--fit", "new", "--out", "map"], ["map"]),
    ],
    "stress": [WRITERS["stress"], PAGE],
    "eval": [WRITERS["eval"], (["lab", "correlate", "run", "new"], []), PAGE],
    "probe": [WRITERS["probe"], PAGE],
    "campaign": [WRITERS["campaign"], (["report", "cells", "--html", "new.html"], ["new.html"])],
    "shrink": [WRITERS["shrink"]],
}  # fmt: skip
COSTS = {"shrink": 0.2, "scan and map": 0.3, "eval": 0.5, "probe": 0.7}
STEPS = 70  # a command is killed before one of its first steps
ODD_VALUES: list[Any] = [0, -1, 3, 1e308, "", "last", "curvature", None, True, [], {}, [None], {"layer": 1}, "\u202e"]


def case(workshop: Workshop, draw: random.Random) -> Case:
    name = draw.choices(list(STORIES), [COSTS.get(name, 1.0) for name in STORIES])[0]
    commands, expected = STORIES[name], expected_of(workshop, name)
    desk = workshop.fresh()
    before, outputs = oracles.tree_of(desk), [output for _, written in commands for output in written]
    did: list[str] = []
    damaged: list[Path] = []
    problems, printed, forged = [], "", False
    for words, _ in commands:
        action = draw.choice(["kill", "damage", "damage", "damage", "forge", "nothing"])
        if action == "kill":
            step = draw.randrange(1, STEPS)
            child = forked.start(words, desk, workshop.streams, first=killer(desk, step))
            did.append(f"{words[0]} killed at step {step}")
        else:
            child = forked.start(words, desk, workshop.streams)
        outcome = child.wait(120, patience=8.0)
        problems += checked(outcome, words, damaged, desk)
        printed += outcome.err[-2000:]
        if action in ("damage", "forge") and (found := damage(desk, outputs, draw, forge=action == "forge")):
            damaged.append(found[0])
            forged = forged or found[2]
            did.append(f"{found[0].relative_to(desk)} {found[1]}")
    own = points.put_own_files(desk, outputs)
    for place, (words, written) in enumerate(commands):
        outcome = forked.run(words, desk, workshop.streams, 120)
        printed += outcome.err[-2000:]
        problems += checked(outcome, words, damaged, desk)
        if outcome.code == 2 and not damaged and "already exists" not in outcome.err:
            problems.append(f"cannot be repeated: {oracles.last_line(outcome.err)}")
        if outcome.code != 0 and "already exists" not in outcome.err:
            break
        if not forged and not (damaged and (outcome.code != 0 or says_missing(outcome, damaged))):
            untouched = {str(path.relative_to(desk)) for path in damaged}  # a file that nobody read may stay
            wanted = {name: value for name, value in expected[place].items() if name not in untouched}
            got = {name: value for name, value in result_of(desk, written).items() if name in wanted}
            problems += [f"{words[0]}: {said}" for said in differences(wanted, got)]
    problems += [
        f"a file of the user was lost: {path.relative_to(desk)}"
        for path, data in own.items() if not path.is_file() or path.read_bytes() != data
    ]  # fmt: skip
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), [*outputs, "new.work"])
    return Case(f"{name}: {'; '.join(did) or 'nothing'}", problems, printed=printed[-6000:])


def expected_of(workshop: Workshop, name: str) -> list[dict[str, str]]:
    """What each command of a story writes if nobody disturbs it."""
    if name not in workshop.results:
        desk = workshop.fresh()
        found = []
        for words, written in STORIES[name]:
            outcome = forked.run(words, desk, workshop.streams, 240)
            if outcome.code not in (0, 1):
                raise RuntimeError(f"{words}: {outcome.code} {outcome.err}")
            found.append(result_of(desk, written))
        workshop.results[name] = found
    return list(workshop.results[name])


def killer(desk: Path, number: int) -> Any:
    def first() -> None:
        points.steady()
        count = 0

        def visited(step: str) -> None:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

        points.at_each_step(desk, visited)

    return first


def checked(outcome: forked.Outcome, words: Sequence[str], damaged: Sequence[Path], desk: Path) -> list[str]:
    """What is wrong with one command. A refusal names what is damaged, or what a command before it has not made."""
    causes = [name for path in damaged for name in (path.name, path.parent.name, path.relative_to(desk).parts[0])]
    not_made = [*arguments.causes(list(words))] if "new" not in causes else ["no finished run", "needs a run"]
    causes += [*not_made, "already exists"]
    return oracles.all_of(outcome, kills.CODES) + oracles.names_no_cause(
        outcome, [*causes, *not_made, "already exists"]
    )


def says_missing(outcome: forked.Outcome, damaged: Sequence[Path]) -> bool:
    return any(
        word in outcome.out + outcome.err for path in damaged for word in (f"{path.name} is missing", "missing:")
    )


def damage(desk: Path, outputs: Sequence[str], draw: random.Random, *, forge: bool) -> tuple[Path, str, bool] | None:
    """Damages a file of the outputs: which, how, and whether only a signature could show it."""
    found = [path for name in outputs for path in [desk / name, *sorted((desk / name).rglob("*"))]]
    files = sorted({path for path in found if path.is_file() and path.suffix in (".json", ".parquet", ".safetensors")})
    if not files:
        return None
    path = draw.choice(files)
    same = [p for p in sorted(desk.rglob(path.name)) if p != path and p.is_file() and "mine" not in p.parts]
    same = [p for p in same if p.read_bytes() != path.read_bytes()]
    if same and draw.random() < 0.3 and not forge:
        other = draw.choice(same)
        shutil.copyfile(other, path)
        return path, f"replaced by {other.relative_to(desk)}", False
    try:
        change = {".json": change_json, ".parquet": change_parquet, ".safetensors": change_tensors}[path.suffix]
        data, how, is_forged = change(path.read_bytes(), draw, forge)
    except (ValueError, KeyError, TypeError, OSError):  # damaged before
        data, how, is_forged = path.read_bytes()[::2], "every second byte", False
    path.write_bytes(data)
    return path, how, is_forged


def change_json(data: bytes, draw: random.Random, forge: bool) -> tuple[bytes, str, bool]:
    """A record with one value changed, one field less or one twice; its checksum is kept, deleted or made right."""
    from layerwise.core.formats import RECORD_CHECKSUM, json_bytes, with_checksum

    record = json.loads(data)
    places = [place for place in places_in(record) if place[1] != RECORD_CHECKSUM]
    owner, key = draw.choice(places)
    if draw.random() < 0.3:
        del owner[key]
        how = f"without {key!r}"
    else:
        owner[key] = draw.choice(ODD_VALUES)
        how = f"with {key!r} as {ascii(owner[key])}"
    had = isinstance(record, dict) and RECORD_CHECKSUM in record
    if not had:
        return json_bytes(record), how, True
    if not forge:
        return json_bytes(record), how, False
    del record[RECORD_CHECKSUM]
    if draw.random() < 0.5:
        return json_bytes(record), f"{how} and without checksum", True
    return json_bytes(with_checksum(record)), f"{how} and a new checksum", True


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with every key in it."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [pair for key in keys for pair in [(value, key), *places_in(value[key])]]


def change_parquet(data: bytes, draw: random.Random, forge: bool) -> tuple[bytes, str, bool]:
    """A table with other rows or columns, written by plain pyarrow; or the bytes cut, or followed by others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from layerwise.core.formats import parquet_bytes

    if not forge:
        cut = draw.randrange(1, len(data))
        return draw.choice([
            (data[:-cut], "truncated", False), (data + data, "followed by itself", False),
            (data + data[-cut:], "with a second end", False), (data[:4] + data[cut:], "without its beginning", False),
        ])  # fmt: skip
    table = pq.read_table(pa.BufferReader(data))
    column = draw.randrange(table.num_columns)
    name = table.column_names[column]
    table, how = draw.choice([
        (table.slice(0, table.num_rows // 2), "with half of its rows"),
        (pa.concat_tables([table, table]), "with each row twice"),
        (table.slice(0, 0), "without rows"),
        (table.drop_columns([name]), f"without column {name}"),
        (table.append_column("extra", pa.array([1] * table.num_rows)), "with another column"),
        (table.set_column(column, name, pa.array(["x"] * table.num_rows)), f"with texts in {name}"),
        (table.set_column(column, name, pa.nulls(table.num_rows)), f"without values in {name}"),
        (table.set_column(column, name, pa.array([2**62] * table.num_rows)), f"with huge numbers in {name}"),
        (table.set_column(column, name, pa.array([[1.0]] * table.num_rows)), f"with lists in {name}"),
    ])  # fmt: skip
    if draw.random() < 0.5:
        return parquet_bytes(table), f"{how} and a new checksum", True
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue(), how, True


def change_tensors(data: bytes, draw: random.Random, forge: bool) -> tuple[bytes, str, bool]:
    """Tensors with exchanged names, other shapes or types, or without metadata. Without a checksum it is forged."""
    import numpy as np
    from safetensors.numpy import load, save

    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
    tensors = load(data)
    names = sorted(tensors)
    one, two = draw.choice(names), draw.choice(names)
    how = draw.choice(["exchanged", "shape", "type", "less", "numbers", "not finite"])
    if how == "exchanged":
        tensors[one], tensors[two] = tensors[two], tensors[one]
    elif how == "shape":
        tensors[one] = np.ascontiguousarray(tensors[one].reshape(-1)[: max(1, tensors[one].size // 2)])
    elif how == "type":
        tensors[one] = tensors[one].astype(draw.choice([np.float64, np.int64, np.float16, np.uint8]))
    elif how == "less":
        del tensors[one]
    elif how == "numbers":
        tensors[one] = tensors[one] + np.ones_like(tensors[one])
    else:
        tensors[one] = np.full_like(tensors[one], np.nan if tensors[one].dtype.kind == "f" else 1)
    return (
        save(tensors, None if draw.random() < 0.2 else metadata),
        f"tensors: {how} ({one})",
        not metadata or one == two,
    )

"""Damage: truncated, flipped, swapped, missing and foreign files, for every file of every run folder and export."""

import random
import re
import shutil
from pathlib import Path

from abuse import forked, oracles
from abuse.desk import READERS, REBUILT, Case, Workshop, differences, result_of

# A changed model or data file is another model or other data: a new result is right, and only what was made from the
# old one must not be served under its name. That holds for the commands that find a finished run.
SOURCES = (
    "model",
    "other",
    "texts.txt",
    "classes.csv",
    "pairs.csv",
    "known.csv",
    "c.yaml",
    "campaign-texts.txt",
    "tasks",
    "small",
)
OPTIONAL = ("pick.json", "tradeoff.json")  # without them, a run is one for which nothing was picked or timed
SERVED = {"scan again", "stress again", "campaign again", "eval again", "probe again"}
FOREIGN = [b"", b"\x00" * 64, b"{}", b"[]", b"null", b'{"a": 1}', b"PAR1", b"<html>", b"\xff\xfe\x00", b"7", b'"text"']
HOWS = (
    "truncated",
    "flipped",
    "flipped",
    "flipped",
    "missing",
    "foreign",
    "swapped",
    "appended",
    "zeroed",
    "folder",
    "twice",
)


def targets(desk: Path, words: list[str]) -> list[Path]:
    """The files in the folders that a command names, and in those that belong to it."""
    names = {word for part in words for word in (part, part.partition(":")[0]) if (desk / word).exists() and word}
    if "c.yaml" in names:
        names |= {"cells", "campaign-texts.txt"}
    found = []
    for name in sorted(names):
        paths = [desk / name, *sorted((desk / name).rglob("*"))]
        found += [p for p in paths if p.is_file() and not p.is_symlink() and p.suffix != ".lock"]
    return found


def damage(path: Path, how: str, others: list[Path], draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    if how == "missing":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "foreign":
        path.write_bytes(draw.choice(FOREIGN))
    elif how == "truncated":
        path.write_bytes(data[: draw.randrange(len(data)) if data else 0])
    elif how == "appended":
        path.write_bytes(bytes(data) + draw.choice(FOREIGN[1:]))
    elif how == "twice":
        path.write_bytes(bytes(data) * 2)
    elif how == "swapped":
        same = [p for p in others if p != path and p.suffix == path.suffix and p.read_bytes() != bytes(data)]
        if not same:
            return damage(path, "truncated", others, draw)
        other = draw.choice(same)
        shutil.copyfile(other, path)
        return f"swapped with {other.name}"
    elif how == "zeroed":
        begin = draw.randrange(len(data)) if data else 0
        end = min(len(data), begin + draw.choice([1, 8, 64]))
        data[begin:end] = bytes(end - begin)
        path.write_bytes(data)
    else:
        if not data:
            return damage(path, "foreign", others, draw)
        place, bit = draw.randrange(len(data)), draw.randrange(8)
        data[place] ^= 1 << bit
        path.write_bytes(data)
        return f"bit {bit} of byte {place} flipped"
    return how


def case(workshop: Workshop, draw: random.Random) -> Case:
    name = draw.choice(list(READERS))
    words = READERS[name]
    outputs = [*oracles.outputs_of(words), *REBUILT.get(name, [])]
    expected = workshop.undisturbed(f"read by {name}", words, outputs)
    desk = workshop.fresh()
    files = targets(desk, words)
    folders: dict[str, list[Path]] = {}
    for file in files:  # each kind of file equally often, however many of them there are
        folders.setdefault(kind_of(file.relative_to(desk)), []).append(file)
    path = draw.choice(folders[draw.choice(sorted(folders))])
    place = path.relative_to(desk)
    same_kind = [p for p in [*files, *desk.rglob(f"*{path.suffix}")] if p.is_file()]
    how = damage(path, draw.choice(HOWS), same_kind, draw)
    before = oracles.tree_of(desk)
    outcome = forked.run(words, desk, workshop.streams, 90)
    problems = oracles.all_of(outcome)
    is_source = place.parts[0] in SOURCES
    problems += oracles.names_no_cause(outcome, [path.name, path.parent.name, *place.parts[:1]])
    problems += oracles.changed_outside(desk, before, oracles.tree_of(desk), outputs)
    problems += oracles.half_written(desk)
    is_optional = how == "missing" and path.name in OPTIONAL
    if outcome.code == 0 and (not is_source or name in SERVED) and not is_optional:
        found = result_of(desk, outputs, outcome.out)
        rest = {key: value for key, value in expected.items() if key != str(place)}  # a file that nobody read may stay
        if not (is_source and says_new(found, expected)) and not says_missing(outcome, path):
            problems += differences(rest, {key: value for key, value in found.items() if key != str(place)})
    what = f"{name}: {place} {how}"
    return Case(what, problems, printed=outcome.out[-2000:] + outcome.err[-4000:])


def says_new(found: dict[str, str], expected: dict[str, str]) -> bool:
    """True if a changed source gave a new result everywhere, rather than an old one under its name."""
    return found.get("stdout") != expected.get("stdout")


def says_missing(outcome: forked.Outcome, path: Path) -> bool:
    """True if the file is gone, and the command says that it went without it."""
    name = re.escape(re.sub(r"\d{5}", "*", path.name))
    return not path.is_file() and re.search(rf"{name} is\s+missing", outcome.out + outcome.err) is not None


def kind_of(place: Path) -> str:
    """The same for files that play the same part: scores of two layers, segments of vectors."""
    return "/".join([place.parts[0], *("*" if any(c.isdigit() for c in part) else part for part in place.parts[1:])])

"""Oracles: how the campaign knows that something is wrong. Every case is held against all that apply to it."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from abuse.forked import Outcome

# Caches: those of libraries, and our own, which holds hashes of weights.
UNASKED = ("home/.cache/matplotlib", "home/.config/matplotlib", "home/.cache/mteb", "home/.cache/layerwise/hashes")
SECRETS = ("AKIAABUSEKEY", "abuse-s3cr3t")  # in the urls and the environment of every case
URL = f"s3://{SECRETS[0]}:{SECRETS[1]}@runs/x?scheme=http&endpoint_override=127.0.0.1:9"
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
RAW = re.compile(r"unexpected \w+:|Traceback \(most recent call last\)|Fatal Python error|terminate called")
HALF_WRITTEN = re.compile(r"\..+\.layerwise")
Tree = dict[str, tuple[int, ...]]


def tree_of(root: Path) -> Tree:
    """Every path below the root with its type, size, time of change and number: any write shows."""
    found: Tree = {}
    stack = [str(root)]
    while stack:
        for entry in os.scandir(stack.pop()):
            status = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.path] = (status.st_mode,) if is_folder else (
                status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino,
            )  # fmt: skip
            if is_folder:
                stack.append(entry.path)
    return found


def changed_outside(root: Path, before: Tree, after: Tree, outputs: Iterable[str]) -> list[str]:
    """Paths that changed though they are neither an output, nor on the way to one, nor a cache."""
    allowed = [Path(os.path.normpath(root / name)) for name in (*outputs, *UNASKED)]
    wrong = []
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path):
            continue
        here = Path(path)
        of_the_user = path in before and (root / "mine" in here.parents or here == root / "mine")
        inside = not of_the_user and any(here == one or one in here.parents for one in allowed)
        on_the_way = path in after and here.is_dir() and any(here in one.parents for one in allowed)
        if not inside and not on_the_way:
            wrong.append(path)
    return [f"changed outside the output: {path.removeprefix(str(root) + '/')}" for path in wrong]


def half_written(root: Path) -> list[str]:
    return [
        f"temporary file left: {path.relative_to(root)}"
        for path in root.rglob(".*")
        if HALF_WRITTEN.fullmatch(path.name)
    ]


def raw_errors(outcome: Outcome, codes: Collection[int] = (0, 1, 2)) -> list[str]:
    """A traceback, an "unexpected" error, an exit code that means nothing, a refusal without a word."""
    found = [f"raw error: {last_line(outcome.err)}"] if RAW.search(outcome.err) else []
    if outcome.code not in codes and not found:
        found.append(f"ended with {outcome.code}: {last_line(outcome.err)}")
    if outcome.refused and not re.search(r"^layerwise: \S", outcome.err, re.MULTILINE):
        found.append(f"refused without a reason: {last_line(outcome.err)}")
    return found


def names_no_cause(outcome: Outcome, causes: Iterable[str]) -> list[str]:
    """A refusal must name one of the causes: an option, a value, a file."""
    if not outcome.refused:
        return []
    message = " ".join(line for line in outcome.err.splitlines() if not line.startswith(" "))
    if any(cause and cause.lower() in message.lower() for cause in causes):
        return []
    return [f"the refusal names no cause: {last_line(outcome.err)}"]


def secrets_in(texts: Iterable[tuple[str, str]]) -> list[str]:
    return [f"secret in {where}" for where, text in texts if any(secret in text for secret in SECRETS)]


def secrets_below(root: Path, paths: Iterable[str]) -> list[str]:
    """Secrets in files that a command wrote."""
    found = []
    for name in paths:
        if not os.path.exists(root / name):  # also False for a name that is too long
            continue
        if not (root / name).resolve().is_relative_to(root):  # nothing is written there: see changed_outside
            continue
        for path in [root / name, *(root / name).rglob("*")]:
            if path.is_file() and not path.is_symlink():
                found.append((str(path.relative_to(root)), path.read_bytes().decode("latin-1")))
    return secrets_in(found)


def controls(outcome: Outcome) -> list[str]:
    """Control characters on a terminal. Progress bars may return to the start of their line."""
    text = outcome.out + outcome.err
    match = CONTROL.search(text.replace("\r", ""))
    return [f"control character {match.group()!r} on the terminal"] if match else []


def all_of(outcome: Outcome, codes: Collection[int] = (0, 1, 2)) -> list[str]:
    """The oracles that hold for every command, whatever it was asked."""
    texts = [("stdout", outcome.out), ("stderr", outcome.err)]
    return [*raw_errors(outcome, codes), *secrets_in(texts), *controls(outcome), *outcome.left]


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "(nothing was printed)"


def outputs_of(words: Sequence[str], outputs: Collection[str] = ()) -> list[str]:
    """What a command line may change: the values of its output options, and the declared outputs."""
    flags = ("--out", "-o", "--html", "--save", "--work", "--export")
    found = [*outputs]
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found.append(value if equals else (words[place + 1] if place + 1 < len(words) else ""))
    return [name for name in found if name.strip()]

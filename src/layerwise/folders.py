"""Outputs: which folders and files a verb may write into, and how a run marks a folder as its own.

A run folder carries the file layerwise-run.json, which says which verb made it. It is written first, and only into a
folder that is new or empty. So everything in a marked folder whose name is exactly one of ours was written by
layerwise; all other files, there and elsewhere, belong to the user and are never changed or deleted.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import psutil

from layerwise.errors import InputError, RunError
from layerwise.files import HOST, TEMPORARY, DiskFolder, Folder, json_bytes, open_folder

MARKER = "layerwise-run.json"
SCHEMA_VERSION = 1
Kind = Literal["scan", "eval", "stress", "campaign", "data"]
NAMES = {
    "scan": "a scan",
    "eval": "an eval",
    "stress": "a stress test",
    "campaign": "a campaign",
    "data": "a prepared task",
}
# What systems and version control put into a folder that nobody has used yet. Every other file counts as the user's,
# hidden or not.
COUNTS_AS_EMPTY = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", "lost+found", ".gitkeep"})
SHOWN = 3  # names in a message


def require_usable(folder: Folder, kind: Kind, **details: str) -> bool:
    """Raises unless a run of that kind may write into the folder; True if one has done so. Writes nothing.

    `details` are further facts that must agree with those in the folder's marker, such as the kind of a stress test.
    """
    if isinstance(folder, DiskFolder):
        require_writable(folder.path)
    marker = folder.read(MARKER)
    if marker is None:
        found = [name for name in folder.entries() if not counts_as_empty(name)]
        if MARKER not in found:  # else another process has just written it
            require_empty(folder, found)
            return False
        marker = folder.read(MARKER)
    there = read_marker(folder, marker or b"")
    name = NAMES.get(str(there["kind"]), repr(there["kind"]))
    if there["kind"] != kind:
        raise RunError(f"{folder} holds {name}, not {NAMES[kind]}; pass another folder to --out")
    differing = [f"{word} {there.get(word)!r} there, {value!r} asked for" for word, value in details.items()
                 if there.get(word) != value]  # fmt: skip
    if differing:
        raise RunError(f"{folder} holds {name} of another kind ({'; '.join(differing)}); pass another folder to --out")
    return True


def claim(folder: Folder, kind: Kind, **details: str) -> None:
    """Marks a new or empty folder as a run of that kind, or goes on with one; raises where it is anything else.

    The marker is created exclusively: of two processes that begin together one writes it and the other compares. An
    object store offers no such write, so there both may believe that they came first; they are of one kind then, or
    the later marker decides.
    """
    if not require_usable(folder, kind, **details):
        folder.create(MARKER, json_bytes({"schema_version": SCHEMA_VERSION, "kind": kind, **details}))
        require_usable(folder, kind, **details)
    if isinstance(folder, DiskFolder):
        delete_left_behind(folder.path)


def counts_as_empty(name: str) -> bool:
    half_written = TEMPORARY.fullmatch(name)
    return name in COUNTS_AS_EMPTY or (half_written is not None and half_written["name"] == MARKER)


def require_empty(folder: Folder, found: list[str]) -> None:
    if {"run.json", "table.parquet"} <= {*found} or "plan.json" in found:
        raise RunError(
            f"{folder} holds results without {MARKER}: a run of an earlier version of layerwise, or a saved table. It "
            "can still be read, but no run is written into it; pass another folder to --out"
        )
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise RunError(
            f"{folder} is not empty ({', '.join(found[:SHOWN])}{more}) and was not made by layerwise (no {MARKER}); "
            "pass a new or empty folder to --out"
        )


def read_marker(folder: Folder, data: bytes) -> dict[str, Any]:
    try:
        marker = json.loads(data)
        version, _ = marker["schema_version"], marker["kind"]
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{MARKER} in {folder} is damaged; pass another folder to --out") from None
    if version != SCHEMA_VERSION:
        raise RunError(
            f"{folder} was made by another version of layerwise (schema_version {version!r} in {MARKER}, this version "
            f"writes {SCHEMA_VERSION}); pass another folder to --out"
        )
    return dict(marker)


def delete_left_behind(path: Path) -> None:
    """Deletes half-written files in a marked folder whose writer, a process of this machine, is gone."""
    for where, _, names in os.walk(path):  # does not follow links
        for name in names:
            half_written = TEMPORARY.fullmatch(name)
            if half_written and half_written["host"] == HOST and not psutil.pid_exists(int(half_written["pid"])):
                (Path(where) / name).unlink(missing_ok=True)


def named(path: str | Path) -> Path:
    """The path; an empty name, such as that of an unset variable, is not the current folder."""
    if not str(path).strip():
        raise InputError("the name of the output is empty (an unset variable?); name a file or folder")
    return Path(path)


def require_writable(folder: Path) -> None:
    """Raises unless files can be written into the folder, or it can be made. Leaves no trace."""
    for place in (folder, *folder.parents):
        if place.is_dir():
            try:
                with tempfile.TemporaryFile(dir=place):
                    return
            except OSError as error:
                raise InputError(f"cannot write into {place} ({error.strerror}); name another folder") from None
        if os.path.lexists(place):
            problem = "--out names a folder" if place == folder else f"{folder} cannot be made in it"
            raise InputError(f"{place} is a file; {problem}")


def require_new_file(
    path: str | Path, *, overwrite: bool = False, ours: Callable[[bytes], bool] = lambda start: False
) -> Path:
    """The path, if a file can be written there and nothing of the user's is lost; raises before anything is computed.

    An existing file is replaced only with `overwrite`, or where `ours` recognises its first 4096 bytes.
    """
    place = named(path).absolute()
    if place.is_dir():
        raise InputError(f"{path} is a folder; name a file in it, such as {Path(path) / 'FILE'}")
    require_writable(place.parent)
    if not os.path.lexists(place):
        return Path(path)
    if not place.is_file():
        raise InputError(f"{path} is not an ordinary file; name another")
    with place.open("rb") as file:
        if not overwrite and not ours(file.read(4096)):
            raise InputError(f"{path} exists already; pass --overwrite (overwrite=True) to replace it, or name another")
    return Path(path)


def require_record(place: str | Path, name: str, keys: Iterable[str]) -> Folder:
    """The folder, if a JSON record can be written there under that name; a file with other keys is the user's."""
    folder = open_folder(place)
    if isinstance(folder, DiskFolder):
        require_writable(folder.path)
        if (folder.path / name).is_dir():
            raise InputError(f"{folder.path / name} is a folder; name another folder")
    data = folder.read(name)
    if data is not None and not has_keys(data, keys):
        raise RunError(f"{name} in {folder} was not written by layerwise; move it away, or pass another folder")
    return folder


def has_keys(data: bytes, keys: Iterable[str]) -> bool:
    try:
        record = json.loads(data)
    except ValueError:
        return False
    return isinstance(record, dict) and {*keys} <= {*record}


def write_record(place: str | Path, name: str, content: dict[str, Any], keys: Iterable[str]) -> None:
    """Writes a JSON record into a folder, new or not, and replaces only one with these keys."""
    require_record(place, name, keys).write(name, json_bytes(content))


def owner() -> dict[str, Any]:
    """This process, so that another can tell whether it still runs."""
    return {"host": HOST, "pid": os.getpid(), "began": psutil.Process().create_time()}


def is_gone(process: Any) -> bool:
    """True if that process, as `owner` described it, is known to have ended."""
    try:
        return process["host"] == HOST and bool(psutil.Process(process["pid"]).create_time() != process["began"])
    except psutil.NoSuchProcess:
        return True
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False

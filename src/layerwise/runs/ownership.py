"""Whose folder it is: how a run marks its own, and which folders a verb may write to.

A run folder contains layerwise-run.json, which names the verb that made it. It is written first, and only into a new or
empty folder. So in a marked folder, a file with one of layerwise's names was written by layerwise. All other files
belong to the user and are never changed or deleted.
"""

from typing import Any, Literal

from layerwise.core.errors import RunError
from layerwise.core.files import TEMPORARY_FILE, DiskFolder, Folder
from layerwise.core.formats import json_bytes, parse_record, with_checksum
from layerwise.core.outputs import delete_abandoned_files, require_writable
from layerwise.runs.records import PLAN, RUN

MARKER = "layerwise-run.json"
SCHEMA_VERSION = 1
Kind = Literal["scan", "eval", "probe", "stress", "campaign", "data", "audit", "shrink", "ways", "reproduce"]
KIND_NAMES = {
    "scan": "a scan",
    "eval": "an eval",
    "probe": "a probe run",
    "stress": "a stress test",
    "campaign": "a campaign",
    "data": "a prepared task",
    "audit": "an audit of a protocol",
    "shrink": "the working files of shrink",
    "ways": "ways to make a model smaller",
    "reproduce": "figures of the paper",
}
# Files that operating systems and version control put into unused folders. Every other file, hidden or not, belongs
# to the user.
COUNTS_AS_EMPTY = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", "lost+found", ".gitkeep"})
MAX_NAMES_SHOWN = 3  # maximum number of names in a message


def require_usable(folder: Folder, kind: Kind, **details: str) -> bool:
    """Raises unless a run of that kind may write to the folder; True if one already has. Writes nothing.

    `details` are further values that must match those in the folder's marker, such as the kind of a stress test.
    """
    if isinstance(folder, DiskFolder):
        require_writable(folder.path)
    marker = folder.read(MARKER)
    if marker is None:
        names = [name for name in folder.entries() if not counts_as_empty(name)]
        if MARKER not in names:  # otherwise another process has just written it
            require_empty(folder, names)
            return False
        marker = folder.read(MARKER)
    marker_record = read_marker(folder, marker or b"")
    name = KIND_NAMES.get(str(marker_record["kind"]), repr(marker_record["kind"]))
    if marker_record["kind"] != kind:
        raise RunError(f"{folder} contains {name}, not {KIND_NAMES[kind]}; choose another folder for --out")
    differing = [f"{key} {marker_record.get(key)!r} there, {value!r} asked for" for key, value in details.items()
                 if marker_record.get(key) != value]  # fmt: skip
    if differing:
        raise RunError(
            f"{folder} contains {name} with other settings ({'; '.join(differing)}); choose another folder for --out"
        )
    for schema in (RUN, PLAN):
        if (data := folder.read(schema.file)) is not None:
            schema.require_not_newer(data, f"{folder}/{schema.file}")
    return True


def claim(folder: Folder, kind: Kind, **details: str) -> None:
    """Marks a new or empty folder as a run of that kind, or continues an existing one; raises otherwise.

    The marker is created exclusively: if two processes start together, one writes it and the other checks it. An object
    store has no exclusive write, so both may believe they were first; if their kinds differ, the later marker wins.
    """
    if not require_usable(folder, kind, **details):
        marker = with_checksum({"schema_version": SCHEMA_VERSION, "kind": kind, **details})
        folder.create(MARKER, json_bytes(marker))
        require_usable(folder, kind, **details)
    if isinstance(folder, DiskFolder):
        delete_abandoned_files(folder.path)


def counts_as_empty(name: str) -> bool:
    half_written = TEMPORARY_FILE.fullmatch(name)
    return name in COUNTS_AS_EMPTY or (half_written is not None and half_written["name"] == MARKER)


def require_empty(folder: Folder, names: list[str]) -> None:
    if {RUN.file, "table.parquet"} <= {*names} or PLAN.file in names:
        raise RunError(
            f"{folder} contains results without {MARKER}, such as a saved table. They can be read, but nothing is "
            "written beside them; choose another folder for --out"
        )
    if names:
        more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
        raise RunError(
            f"{folder} is not empty ({', '.join(names[:MAX_NAMES_SHOWN])}{more}) and is not a layerwise folder "
            f"(no {MARKER}); choose a new or empty folder for --out"
        )


def read_marker(folder: Folder, data: bytes) -> dict[str, Any]:
    try:
        marker = parse_record(data, MARKER)
        version, _ = marker["schema_version"], marker["kind"]
    except (RunError, KeyError):
        raise RunError(f"{MARKER} in {folder} is damaged; choose another folder for --out") from None
    if version != SCHEMA_VERSION:
        raise RunError(
            f"{folder} was made by another version of layerwise (schema_version {version!r} in {MARKER}, this version "
            f"writes {SCHEMA_VERSION}); choose another folder for --out"
        )
    return dict(marker)

"""Claims: how a run marks a folder as its own, and which folders a verb may write into.

A run folder carries the file layerwise-run.json, which says which verb made it. It is written first, and only into a
folder that is new or empty. So everything in a marked folder whose name is exactly one of ours was written by
layerwise; all other files, there and elsewhere, belong to the user and are never changed or deleted.
"""

import json
from typing import Any, Literal

from layerwise.core.errors import RunError
from layerwise.core.files import TEMPORARY, DiskFolder, Folder
from layerwise.core.formats import json_bytes
from layerwise.core.outputs import delete_left_behind, require_writable
from layerwise.runs.records import PLAN, RUN

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
        names = [name for name in folder.entries() if not counts_as_empty(name)]
        if MARKER not in names:  # else another process has just written it
            require_empty(folder, names)
            return False
        marker = folder.read(MARKER)
    marker_record = read_marker(folder, marker or b"")
    name = NAMES.get(str(marker_record["kind"]), repr(marker_record["kind"]))
    if marker_record["kind"] != kind:
        raise RunError(f"{folder} holds {name}, not {NAMES[kind]}; pass another folder to --out")
    differing = [f"{key} {marker_record.get(key)!r} there, {value!r} asked for" for key, value in details.items()
                 if marker_record.get(key) != value]  # fmt: skip
    if differing:
        raise RunError(f"{folder} holds {name} of another kind ({'; '.join(differing)}); pass another folder to --out")
    for schema in (RUN, PLAN):
        if (data := folder.read(schema.file)) is not None:
            schema.require_not_newer(data, f"{folder}/{schema.file}")
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
    if {RUN.file, "table.parquet"} <= {*found} or PLAN.file in found:
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

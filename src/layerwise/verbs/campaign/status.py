"""The status of every scan of a campaign, read from the files of its folder."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from layerwise.core.errors import RunError
from layerwise.core.formats import record_bytes
from layerwise.core.hashes import file_hash
from layerwise.inputs.modalities import MEDIA
from layerwise.inputs.text import SUFFIXES
from layerwise.models.fingerprint import hash_lines, weight_files_hash
from layerwise.models.shipped import read_shipped
from layerwise.runs.leases import is_of_dead_process, lease_files
from layerwise.runs.records import CELL, FAILED
from layerwise.runs.result import RUN_FILE
from layerwise.verbs.campaign.plan import Campaign, Cell

Status = Literal["done", "running", "failed", "waiting"]
STATUSES: tuple[Status, ...] = ("done", "running", "failed", "waiting")
READERS = 16  # folders that are read at the same time; an object store answers slowly, but many at once


@dataclass(frozen=True)
class CellStatus:
    """One scan of a campaign, and what its folder says about it.

    Attributes:
        cell: which scan.
        status: done, running, failed or waiting.
        reason: why it failed.
    """

    cell: Cell
    status: Status
    reason: str = ""


def statuses(plan: Campaign) -> list[CellStatus]:
    """The status of every scan, in the order of the campaign file."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(partial(status_of, plan), plan.cells))


def status_of(plan: Campaign, cell: Cell) -> CellStatus:
    if is_done(plan, cell):
        return CellStatus(cell, "done")
    folder = plan.folder(cell)
    names = lease_files(folder)
    if names and not is_of_dead_process(folder.read(names[-1]) or b""):
        return CellStatus(cell, "running")
    if (data := folder.read(FAILED.file)) is not None:
        return CellStatus(cell, "failed", FAILED.parse(data, f"{folder}/{FAILED.file}").get("reason", ""))
    return CellStatus(cell, "waiting")


def counts(found: Sequence[CellStatus]) -> dict[Status, int]:
    """How many scans have each status."""
    counter = Counter(entry.status for entry in found)
    return {status: counter[status] for status in STATUSES}


def is_done(plan: Campaign, cell: Cell) -> bool:
    """True if the cell has a table; raises where the folder holds another scan, or its data file has changed."""
    folder = plan.folder(cell)
    data = folder.read(CELL.file)
    if data is None:
        return False
    record = CELL.parse(data, f"{folder}/{CELL.file}")
    recorded_hash, recorded_model = (record.pop(name, None) for name in ("data_hash", "model_hash"))
    if record != json.loads(record_bytes(cell.record())):
        raise RunError(
            f"{folder} contains a scan with other settings; rename the data or the settings in the campaign file"
        )
    if recorded_hash != data_file_hash(cell):
        problem = f"{cell.data['data']} has changed since {folder} was scanned"
        raise RunError(f"{problem}; rename the changed data in the campaign file, or delete that folder")
    if recorded_model != model_files_hash(cell):
        problem = f"the files of {cell.model.name} have changed since {folder} was scanned"
        raise RunError(f"{problem}; move the changed model to another path, or delete that folder")
    return folder.read(RUN_FILE) is not None


def model_files_hash(cell: Cell) -> str:
    """A hash of the files of a model in a local folder; "" for a model of the hub, which its revision identifies."""
    folder = Path(cell.model.name)
    if not folder.is_dir():
        return ""
    json_files = [path for path in sorted(folder.glob("*.json")) if path.is_file()]
    weights = weight_files_hash(cell.model.name, None, read_shipped(cell.model.name), cell.model.adapter) or ""
    return hash_lines([weights, *(f"{path.name} {file_hash(path)}" for path in json_files)])


def data_file_hash(cell: Cell) -> str:
    """A hash of a cell's data file, or of all media files in its folder; "" where the data are not on this machine."""
    path = Path(str(cell.data["data"]))
    if path.is_dir():
        return hash_lines([f"{file.relative_to(path)} {file_hash(file)}" for file in media_files(path)])
    suffixes = {*SUFFIXES, *(suffix for medium in MEDIA.values() for suffix in medium.suffixes)}
    if path.suffix.lower() not in suffixes or not path.is_file():
        return ""
    return file_hash(path)


def media_files(folder: Path) -> list[Path]:
    """All audio and image files of a folder."""
    return sorted(file for medium in MEDIA.values() for file in medium.files_in(folder))

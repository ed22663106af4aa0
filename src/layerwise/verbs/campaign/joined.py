"""The table of a campaign: the rows of all finished scans in one Parquet file, extended as more of them finish.

run.json holds the record of every scan, and under `cells` its name, its number of rows and a hash of its record. So a
campaign that goes on reads the tables of new scans only.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.formats import parquet_bytes, read_parquet, require_checksum, with_checksum
from layerwise.runs.records import RUN
from layerwise.runs.result import OWN_TABLE, RUN_FILE, TABLE_FILE, read_result, write_result
from layerwise.runs.table import arrow_columns, require_no_other_table
from layerwise.verbs.campaign.plan import Campaign, Cell
from layerwise.verbs.campaign.status import READERS


@dataclass(frozen=True, eq=False)  # a part that was read before is the same object
class Part:
    """The rows of one scan within the table of a campaign, as an Arrow table."""

    name: str
    record: dict[str, Any]
    record_hash: str
    rows: Any


def join_scans(plan: Campaign, done: Sequence[Cell]) -> None:
    """Writes the rows of the finished scans as one table into the campaign's folder."""
    import pyarrow as pa

    root = open_folder(plan.out)
    require_no_other_table(root)
    earlier = earlier_parts(root)

    def part(cell: Cell) -> Part:
        folder = plan.folder(cell)
        found = earlier.get(cell.name)
        is_same = found is not None and found.record_hash == hash_of(folder.read(RUN_FILE) or b"")
        return found if found is not None and is_same else read_part(cell.name, folder)

    with ThreadPoolExecutor(READERS) as pool:
        parts = list(pool.map(part, done))
    if parts == list(earlier.values()):  # nothing is new
        return
    table = pa.concat_tables([part.rows for part in parts])
    cells = [{"name": part.name, "rows": len(part.rows), "hash": part.record_hash} for part in parts]
    # The records were redacted when they were written. Thousands of them are written without line breaks.
    content = {"kind": "joined", "runs": [part.record for part in parts], "cells": cells}

    def record(tables: dict[str, Any]) -> bytes:
        made = with_checksum({"schema_version": RUN.version, **content, **tables})
        return json.dumps(made, ensure_ascii=False).encode()

    write_result(root, parquet_bytes(table), record)


def read_part(name: str, folder: Folder) -> Part:
    table, record, data = read_result(folder)
    record.pop(OWN_TABLE, None)
    where = f"{folder}/{TABLE_FILE}"
    require_checksum(table, where)
    return Part(name, record, hash_of(data), arrow_columns(read_parquet(table, where), where))


def earlier_parts(root: Folder) -> dict[str, Part]:
    """The scans that the table already has; none if there is no table, or if it is damaged."""
    try:
        table, record, _ = read_result(root)
        require_checksum(table, TABLE_FILE)
        rows = read_parquet(table, TABLE_FILE)
    except RunError:
        return {}
    cells, parts, first = record.get("cells", []), {}, 0
    if sum(cell["rows"] for cell in cells) != len(rows) or len(cells) != len(record.get("runs", [])):
        return {}
    for cell, run in zip(cells, record["runs"], strict=True):
        parts[cell["name"]] = Part(cell["name"], run, cell["hash"], rows.slice(first, cell["rows"]))
        first += cell["rows"]
    return parts


def hash_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()

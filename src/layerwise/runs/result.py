"""The result of a run: table.parquet and run.json, which are written and read as a pair."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from layerwise.core.display import command_line
from layerwise.core.errors import RunError
from layerwise.core.files import Folder
from layerwise.core.formats import (
    RECORD_CHECKSUM,
    json_bytes,
    parse_record,
    require_checksum,
    stored_checksum,
    with_checksum,
)
from layerwise.runs.records import RUN, parse_run, read_run

TABLE_FILE, RUN_FILE = "table.parquet", RUN.file
OWN_TABLE = "table"  # the field of run.json with the checksum of the table that it belongs to
NEXT = "next"  # the field of run.json with the record that replaces it, while both files are replaced
MAX_READS = 3  # of a table and its record, if another process replaces them meanwhile


def write_result(folder: Folder, table: bytes, record: Callable[[dict[str, Any]], bytes]) -> None:
    """Writes table.parquet, then run.json with the checksum of the table, so that neither is read with another's.

    An earlier run.json first gets the new record beside its own. So whichever table a reader finds, and whichever one
    a killed process leaves behind, its record is there.
    """
    new = record({OWN_TABLE: stored_checksum(table)})
    with suppress(RunError):  # what is damaged is replaced
        _, earlier, _ = read_result(folder)
        if OWN_TABLE in earlier:
            both = {"schema_version": RUN.version, **earlier, NEXT: parse_record(new, RUN_FILE)}
            folder.write(RUN_FILE, json_bytes(with_checksum(both)))
    folder.write(TABLE_FILE, table)
    folder.write(RUN_FILE, new)


def read_result(folder: Folder) -> tuple[bytes, dict[str, Any], bytes]:
    """The bytes of a table, the record that belongs to it, and the bytes of run.json.

    If another process replaces both files between the two reads, they are read again.
    """
    path = f"{folder}/{TABLE_FILE}"
    for _ in range(MAX_READS):
        table, data = (folder.read(name) for name in (TABLE_FILE, RUN_FILE))
        if table is None:
            advice = command_line(["layerwise", "scan", "...", "--out", str(folder)])
            raise RunError(f"{folder} contains no finished run (no {TABLE_FILE}); run `{advice}`")
        if data is None:
            raise RunError(f"{folder} contains no finished run (no {RUN_FILE}); repeat the command that made it")
        require_checksum(table, path, allow_missing=True)
        record = parse_run(data, f"{folder}/{RUN_FILE}")
        following = record.pop(NEXT, None)
        if belongs_to(record, table, data):
            return table, record, data
        if following is not None and belongs_to(following, table, data):
            return table, read_run(following, f"{folder}/{RUN_FILE}"), data
    raise RunError(f"{path} is not the table that {RUN_FILE} beside it belongs to; repeat the run, or restore it")


def belongs_to(record: Mapping[str, Any], table: bytes, data: bytes) -> bool:
    """True if a table is the one that a record was written for.

    `data` are the bytes of run.json. With a checksum but without a table, they were written as another file. A table
    without a checksum was rewritten by other software, which is the user's choice.
    """
    if OWN_TABLE not in record:
        return f'"{RECORD_CHECKSUM}"'.encode() not in data
    return stored_checksum(table) in ("", record[OWN_TABLE])

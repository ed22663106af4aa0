"""File formats: JSON records and Parquet tables with a checksum, and YAML as campaign files may use it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerwise.core.checks import require_file_name
from layerwise.core.display import redact_record
from layerwise.core.errors import InputError, RunError

MAX_YAML_BYTES = 256_000  # of a campaign file: enough for thousands of models
MAX_YAML_DEPTH = 20
RECORD_CHECKSUM = "checksum"  # the field of a JSON record
CHECKSUM_KEY = "layerwise.checksum"
CHECKSUM_PREFIX, CHECKSUM_PLACEHOLDER = b"layerwise-checksum:", b"0" * 32


def json_bytes(content: Any) -> bytes:
    # Half a character, which a command line may contain, becomes the escape that JSON has for it.
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")


def record_bytes(content: Mapping[str, Any]) -> bytes:
    """A record as JSON bytes, with URL secrets redacted."""
    return json_bytes(redact_record(content))


def with_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a checksum of its content, so that a changed byte is noticed when it is read."""
    plain = json.loads(json.dumps(record))  # as it will be read: lists for tuples, names for numbers
    return {**record, RECORD_CHECKSUM: record_checksum(plain)}


def record_checksum(record: Mapping[str, Any]) -> str:
    content = json.dumps({name: value for name, value in record.items() if name != RECORD_CHECKSUM}, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def parse_record(data: bytes, where: str) -> dict[str, Any]:
    """Parses a JSON object from a file; raises RunError with the file name if it is anything else, or was changed.

    A record without a checksum is accepted, since people write recipes by hand.
    """
    return verified_record(parse_object(data, where), where)


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Parses a JSON object; its checksum, if it has one, is not verified yet."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is damaged ({error}); recreate it, or delete it") from None
    if not isinstance(record, dict):
        raise RunError(f"{where} is damaged (expected an object, got {type(record).__name__}); make it again")
    return record


def verified_record(record: dict[str, Any], where: str) -> dict[str, Any]:
    """The record without its checksum; raises RunError if it was changed."""
    if RECORD_CHECKSUM in record and record.pop(RECORD_CHECKSUM) != record_checksum(record):
        raise RunError(
            f"{where} was changed after it was written (checksum mismatch); recreate it. If you changed it on purpose, "
            f"delete its field {RECORD_CHECKSUM!r}"
        )
    return record


def parse_stored(data: bytes, where: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Parses a record that later calls of layerwise rely on; raises RunError unless it has all fields of the shape.

    A checksum alone does not show that: without one, a record counts as changed on purpose.
    """
    record = parse_record(data, where)
    if missing := shape.keys() - record.keys():
        raise RunError(f"{where} is damaged (no {', '.join(sorted(missing))}); delete it, so that it is made again")
    require_shape(record, shape, where)
    return record


def require_shape(record: Any, shape: Any, where: str) -> None:
    """Raises RunError if a value has a different type than `shape` says.

    A shape is a type, a tuple of types, a mapping from names to shapes (names may be missing), a mapping from `str` to
    the shape of all values, or a list with one shape.
    """
    if isinstance(shape, Mapping):
        require_shape(record, dict, where)
        if str in shape:
            shape = dict.fromkeys(record, shape[str])
        for name, inner in shape.items():
            if name in record:
                require_shape(record[name], inner, f"{where}: {name}")
    elif isinstance(shape, list):
        require_shape(record, list, where)
        for index, value in enumerate(record):
            require_shape(value, shape[0], f"{where}[{index}]")
    elif not isinstance(record, shape) or (isinstance(record, bool) and shape is not bool):
        kinds = shape if isinstance(shape, tuple) else (shape,)
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise RunError(f"{where} is damaged (expected {names}, got {type(record).__name__}); recreate it")


def parquet_bytes(table: Any) -> bytes:
    """An Arrow table as a Parquet file whose footer contains a checksum of all its bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({CHECKSUM_KEY: CHECKSUM_PREFIX.decode() + CHECKSUM_PLACEHOLDER.decode()})
    data = bytes(sink.getvalue())
    offset = data.rindex(CHECKSUM_PREFIX) + len(CHECKSUM_PREFIX)
    return data[:offset] + checksum_excluding(data, offset) + data[offset + len(CHECKSUM_PLACEHOLDER) :]


def checksum_excluding(data: bytes, offset: int) -> bytes:
    """The checksum of a file, computed with zeros in place of the checksum itself."""
    digest = hashlib.blake2b(data[:offset], digest_size=len(CHECKSUM_PLACEHOLDER) // 2)
    digest.update(CHECKSUM_PLACEHOLDER)
    digest.update(data[offset + len(CHECKSUM_PLACEHOLDER) :])
    return digest.hexdigest().encode()


def stored_checksum(data: bytes) -> str:
    """The checksum in a Parquet file; "" if it has none."""
    mark_offset = data.rfind(CHECKSUM_PREFIX)
    offset = mark_offset + len(CHECKSUM_PREFIX)
    return data[offset : offset + len(CHECKSUM_PLACEHOLDER)].decode(errors="replace") if mark_offset >= 0 else ""


def require_checksum(data: bytes, where: str, *, allow_missing: bool = False) -> None:
    """Raises RunError if a Parquet file has changed since it was written.

    With `allow_missing`, a file without a checksum is accepted: other software may have rewritten it.
    """
    mark_offset = data.rfind(CHECKSUM_PREFIX)
    offset = mark_offset + len(CHECKSUM_PREFIX)
    if mark_offset < 0 and not allow_missing:
        raise RunError(f"{where} has no checksum: it is damaged, or other software rewrote it; recreate it")
    if mark_offset >= 0 and checksum_excluding(data, offset) != data[offset : offset + len(CHECKSUM_PLACEHOLDER)]:
        raise RunError(f"{where} is damaged (checksum mismatch); repeat the run in another folder")


def read_parquet(data: bytes, where: str) -> Any:
    """Reads Parquet bytes as an Arrow table; raises RunError with the file name if they cannot be read.

    pq.read_table is avoided: an Arrow thread keeps a reference to our bytes, and releasing it while Python shuts
    down crashes the process.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
            table = file.read(use_threads=False)
            table.validate(full=True)  # else text that is not UTF-8 is noticed only where it is used
            return table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunError(f"{where} cannot be read ({error}); recreate it") from None


def read_yaml(path: Path) -> Any:
    """The content of a YAML file. Aliases are refused: a few lines of them can fill any memory."""
    import yaml

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > MAX_YAML_DEPTH:
                raise InputError(f"{path} is nested too deeply for a campaign file")
            if self.check_event(yaml.AliasEvent):
                alias = self.peek_event()
                raise InputError(
                    f"{path}, line {alias.start_mark.line + 1}: aliases such as *{alias.anchor} are not allowed in a "
                    "campaign; write the value out"
                )
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    require_file_name(path)
    try:
        if path.stat().st_size > MAX_YAML_BYTES:
            raise InputError(f"{path} is larger than {MAX_YAML_BYTES:,} bytes; split the campaign into several")
        return yaml.load(path.read_text(encoding="utf-8"), PlainLoader)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason})") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from None

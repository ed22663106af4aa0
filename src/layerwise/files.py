"""Files that are whole or absent, in a folder on disk or in an object store."""

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from layerwise.display import printable, redacted, redacted_record
from layerwise.errors import InputError, RunError

T = TypeVar("T")

CHECKSUM_NAME = "layerwise.checksum"
CHECKSUM_MARK, NO_CHECKSUM = b"layerwise-checksum:", b"0" * 32
NAME_LENGTH = 100  # characters; file systems take 255 bytes, and names get endings
NAME_SIGNS = " ._-+(),"

# An object store answers with an error now and then: waits between tries, in seconds.
PATIENCE = (0.5, 2.0, 8.0)


def this_host() -> str:
    """A short hash of the machine and the container: process numbers can be looked up only within the same ones."""
    known = [platform.node()]
    with suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    with suppress(OSError):
        known.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    return hashlib.blake2b(repr(known).encode(), digest_size=4).hexdigest()


# A file under construction: .NAME.HOST-PID-RANDOM.layerwise, so that a later run can tell who left it behind.
HOST = this_host()
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.layerwise")


def write_atomically(path: Path, data: bytes) -> None:
    """Writes data to path so that a reader sees the old file or the new one, never a part."""
    with written_beside(path, data) as beside:
        os.replace(beside, path)


def create_atomically(path: Path, data: bytes) -> bool:
    """Writes data to a path where nothing is yet, and returns True; False where another process was there first."""
    with written_beside(path, data) as beside:
        try:
            os.link(beside, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
        try:  # a file system without links: exclusive as well, but a reader may see a part for a moment
            with path.open("xb") as file:
                file.write(data)
            return True
        except FileExistsError:
            return False


@contextmanager
def written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """A complete file beside its place; it is gone afterwards. Whatever fails is reported with the path."""
    beside = path.with_name(f".{path.name[:50]}.{HOST}-{os.getpid()}-{secrets.token_hex(4)}.layerwise")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as file:  # plain open: the user's umask decides who may read
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield beside
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space, or name a place on another disk" if full else "name another place"
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def safe_name(word: Any, what: str) -> str:
    """The word, if it can be one part of a path and nothing else; raises InputError where it cannot."""
    text = word if isinstance(word, str) else ""
    if (
        not text.strip()
        or text[0] in ". "
        or len(text) > NAME_LENGTH
        or not all(sign.isalnum() or sign in NAME_SIGNS for sign in text)
    ):
        shown = printable(repr(word)) if len(repr(word)) <= 2 * NAME_LENGTH else f"of {len(repr(word))} characters"
        raise InputError(
            f"{what} {shown} cannot be used as a file name; use 1 to {NAME_LENGTH} letters, digits and "
            f"{' '.join(NAME_SIGNS.strip())}, not beginning with a dot"
        )
    return text


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def parse_record(data: bytes, where: str) -> dict[str, Any]:
    """A JSON object from a file; raises RunError naming the file where it is anything else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is damaged ({error}); make it again, or delete it") from None
    if not isinstance(found, dict):
        raise RunError(f"{where} is damaged (expected an object, got {type(found).__name__}); make it again")
    return found


def require_shape(record: Any, shape: Any, where: str) -> None:
    """Raises RunError where a value that is there has another type than `shape` says.

    A shape is a type or several, a mapping from names to shapes (names may be missing), or a list of one shape.
    """
    if isinstance(shape, Mapping):
        require_shape(record, dict, where)
        for name, inner in shape.items():
            if name in record:
                require_shape(record[name], inner, f"{where}: {name}")
    elif isinstance(shape, list):
        require_shape(record, list, where)
        for place, value in enumerate(record):
            require_shape(value, shape[0], f"{where}[{place}]")
    elif not isinstance(record, shape) or (isinstance(record, bool) and shape is not bool):
        kinds = shape if isinstance(shape, tuple) else (shape,)
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise RunError(f"{where} is damaged (expected {names}, got {type(record).__name__}); make it again")


def parquet_bytes(table: Any) -> bytes:
    """An Arrow table as a Parquet file that carries a checksum of all its bytes in its footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({CHECKSUM_NAME: CHECKSUM_MARK.decode() + NO_CHECKSUM.decode()})
    data = bytes(sink.getvalue())
    place = data.rindex(CHECKSUM_MARK) + len(CHECKSUM_MARK)
    return data[:place] + checksum_around(data, place) + data[place + len(NO_CHECKSUM) :]


def checksum_around(data: bytes, place: int) -> bytes:
    """The checksum of a file with zeros in the place of the checksum."""
    found = hashlib.blake2b(data[:place], digest_size=len(NO_CHECKSUM) // 2)
    found.update(NO_CHECKSUM)
    found.update(data[place + len(NO_CHECKSUM) :])
    return found.hexdigest().encode()


def require_checksum(data: bytes, where: str, *, older: bool = False) -> None:
    """Raises RunError where a Parquet file's bytes are not those that were written.

    With `older`, a file without a checksum, as earlier versions wrote, is let through.
    """
    found = data.rfind(CHECKSUM_MARK)
    place = found + len(CHECKSUM_MARK)
    if found < 0 and not older:
        raise RunError(f"{where} has no checksum: it is damaged, or of an earlier layerwise; make it again")
    if found >= 0 and checksum_around(data, place) != data[place : place + len(NO_CHECKSUM)]:
        raise RunError(f"{where} is damaged (its checksum differs); make it again in another folder")


def read_parquet(data: bytes, where: str) -> Any:
    """A Parquet file's bytes as an Arrow table; raises RunError naming the file where they are none.

    Not pq.read_table: it lets a thread of Arrow hold on to our bytes, and a thread that gives them back while Python
    ends brings the whole process down.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data), pre_buffer=False) as file:
            return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunError(f"{where} cannot be read ({error}); make it again") from None


def record_bytes(content: Mapping[str, Any]) -> bytes:
    """JSON that says how a result was made, without the secrets of the urls in it."""
    return json_bytes(redacted_record(content))


def write_json(path: Path, content: Any) -> None:
    write_atomically(path, json_bytes(content))


class Folder(Protocol):
    """Where a run is kept. Names are relative, with slashes; every file is whole or absent; it can be pickled."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None where there is none."""

    def write(self, name: str, data: bytes) -> None: ...
    def create(self, name: str, data: bytes) -> bool:
        """Writes a file that is not there yet; False where there is one. On a disk, one of two processes wins."""

    def delete(self, names: Iterable[str]) -> None:
        """Deletes the files that are there."""

    def names(self, within: str = "") -> list[str]:
        """The names of the files in a folder of the folder, sorted; hidden ones are left out."""

    def entries(self) -> list[str]:
        """The names of all files and folders in the folder, hidden ones as well, sorted."""

    def clear(self, within: str, names: re.Pattern[str]) -> None:
        """Deletes files with such names, whole or half written; then the folder within, if nothing else is in it."""


@dataclass(frozen=True)
class DiskFolder:
    """A folder on a disk that every process of the run sees under this path."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise RunError(f"{self.path} is a file; a run is a folder (--out names a folder)") from None
        except OSError as error:  # a folder in its place, or no right to read it
            raise RunError(f"{self.path / name} cannot be read ({error.strerror}); expected a file") from None

    def write(self, name: str, data: bytes) -> None:
        write_atomically(self.path / name, data)

    def create(self, name: str, data: bytes) -> bool:
        return create_atomically(self.path / name, data)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def names(self, within: str = "") -> list[str]:
        try:
            found = [path.name for path in (self.path / within).iterdir() if path.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in found if not name.startswith("."))

    def entries(self) -> list[str]:
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def clear(self, within: str, names: re.Pattern[str]) -> None:
        folder = self.path / within
        for path in list(folder.iterdir()) if folder.is_dir() else []:
            half_written = TEMPORARY.fullmatch(path.name)
            if names.fullmatch(half_written["name"] if half_written else path.name) and not path.is_dir():
                path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or never there
            folder.rmdir()


@dataclass(frozen=True)
class RemoteFolder:
    """A folder of an object store, such as s3://bucket/run: an object appears when its upload is complete.

    `url` is what pyarrow understands; the endpoint of another server than Amazon's is an option in it:
    s3://bucket/run?scheme=http&endpoint_override=host:port.
    """

    url: str

    def __str__(self) -> str:
        return redacted(self.url)

    def __repr__(self) -> str:
        return f"RemoteFolder({redacted(self.url)!r})"

    def _open(self) -> tuple[Any, str]:
        import pyarrow as pa
        from pyarrow.fs import FileSystem

        try:
            filesystem, path = FileSystem.from_uri(self.url)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise InputError(f"cannot use {self.url!r} as a folder: {error}") from None  # its own text holds the url
        return filesystem, path.rstrip("/")

    def read(self, name: str) -> bytes | None:
        def attempt() -> bytes | None:
            filesystem, path = self._open()
            try:
                with filesystem.open_input_stream(f"{path}/{name}") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        return patiently(attempt)

    def write(self, name: str, data: bytes) -> None:
        def attempt() -> None:
            filesystem, path = self._open()
            with filesystem.open_output_stream(f"{path}/{name}") as file:
                file.write(data)

        patiently(attempt)

    def create(self, name: str, data: bytes) -> bool:
        """As above; pyarrow has no conditional write, so two processes that begin together may both get True."""
        if self.read(name) is not None:
            return False
        self.write(name, data)
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            patiently(partial(self._delete, name))

    def _delete(self, name: str) -> None:
        filesystem, path = self._open()
        try:
            filesystem.delete_file(f"{path}/{name}")
        except FileNotFoundError:
            pass

    def names(self, within: str = "") -> list[str]:
        return [name for name, is_file in self._listed(within) if is_file]

    def entries(self) -> list[str]:
        return [name for name, _ in self._listed("")]

    def _listed(self, within: str) -> list[tuple[str, bool]]:
        def attempt() -> list[tuple[str, bool]]:
            from pyarrow.fs import FileSelector, FileType

            filesystem, path = self._open()
            selector = FileSelector(f"{path}/{within}".rstrip("/"), allow_not_found=True)
            return sorted((info.base_name, info.type == FileType.File) for info in filesystem.get_file_info(selector))

        return patiently(attempt)

    def clear(self, within: str, names: re.Pattern[str]) -> None:
        self.delete(f"{within}/{name}" for name in self.names(within) if names.fullmatch(name))


def patiently(attempt: Callable[[], T]) -> T:
    """What the attempt gives, tried again a few times where the store answers with an error."""
    for wait in PATIENCE:
        try:
            return attempt()
        except OSError:
            time.sleep(wait)
    return attempt()


def has_file(place: str | Path, name: str) -> bool:
    """True if the folder at a path or url holds that file."""
    if "://" not in str(place):
        return (Path(place) / name).exists()
    return open_folder(place).read(name) is not None


def last_part(place: str | Path) -> str:
    """The name of a folder, out of its path or url."""
    text = str(place)
    return Path(text.partition("?")[0] if "://" in text else text).name


def open_folder(place: str | Path, within: str = "") -> Folder:
    """The folder at a path on disk or at a url of an object store, or one within it."""
    if not str(place).strip():
        raise InputError("the name of the folder is empty (an unset variable?); name one, or . for this folder")
    if "://" not in str(place):
        return DiskFolder((Path(place) / within).absolute())
    path, mark, options = str(place).partition("?")  # a url carries its options behind its path
    return RemoteFolder("/".join(filter(None, [path.rstrip("/"), within])) + mark + options)

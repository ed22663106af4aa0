"""Files that are whole or absent, in a folder on disk or in an object store."""

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from layerwise.errors import InputError

T = TypeVar("T")

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


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


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
        except FileNotFoundError:
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
        return self.url

    def _open(self) -> tuple[Any, str]:
        import pyarrow as pa
        from pyarrow.fs import FileSystem

        try:
            filesystem, path = FileSystem.from_uri(self.url)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise InputError(f"cannot use {self.url!r} as a folder: {error}") from error
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


def open_folder(place: str | Path, within: str = "") -> Folder:
    """The folder at a path on disk or at a url of an object store, or one within it."""
    if not str(place).strip():
        raise InputError("the name of the folder is empty (an unset variable?); name one, or . for this folder")
    if "://" not in str(place):
        return DiskFolder((Path(place) / within).absolute())
    path, mark, options = str(place).partition("?")  # a url carries its options behind its path
    return RemoteFolder("/".join(filter(None, [path.rstrip("/"), within])) + mark + options)

"""Files that are whole or absent, in a folder on disk or in an object store."""

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from layerwise.errors import InputError

T = TypeVar("T")

# An object store answers with an error now and then: waits between tries, in seconds.
PATIENCE = (0.5, 2.0, 8.0)


def write_atomically(path: Path, data: bytes) -> None:
    """Writes data to path so that a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # plain open: the user's umask decides who may read
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, content: Any) -> None:
    write_atomically(path, json_bytes(content))


class Folder(Protocol):
    """Where a run is kept. Names are relative, with slashes; every file is whole or absent; it can be pickled."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None where there is none."""

    def write(self, name: str, data: bytes) -> None: ...
    def delete(self, names: Iterable[str]) -> None:
        """Deletes the files that are there."""

    def names(self, within: str = "") -> list[str]:
        """The names of the files in a folder of the folder, sorted; hidden ones are left out."""

    def clear(self, within: str) -> None:
        """Deletes a folder of the folder, and what a killed process may have left half written in it."""


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

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def names(self, within: str = "") -> list[str]:
        try:
            found = [path.name for path in (self.path / within).iterdir() if path.is_file()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def clear(self, within: str) -> None:
        shutil.rmtree(self.path / within, ignore_errors=True)


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
        def attempt() -> list[str]:
            from pyarrow.fs import FileSelector, FileType

            filesystem, path = self._open()
            selector = FileSelector(f"{path}/{within}".rstrip("/"), allow_not_found=True)
            return sorted(info.base_name for info in filesystem.get_file_info(selector) if info.type == FileType.File)

        return patiently(attempt)

    def clear(self, within: str) -> None:
        def attempt() -> None:
            filesystem, path = self._open()
            filesystem.delete_dir_contents(f"{path}/{within}", missing_dir_ok=True)

        patiently(attempt)


def patiently(attempt: Callable[[], T]) -> T:
    """What the attempt gives, tried again a few times where the store answers with an error."""
    for wait in PATIENCE:
        try:
            return attempt()
        except OSError:
            time.sleep(wait)
    return attempt()


def open_folder(place: "str | Path | Folder") -> Folder:
    """A path on disk, or a url of an object store."""
    if isinstance(place, str | Path):
        return RemoteFolder(str(place)) if "://" in str(place) else DiskFolder(Path(place).absolute())
    return place

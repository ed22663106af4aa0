"""Files that are either complete or absent, on disk or in an object store."""

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from layerwise.core.checks import require_file_name
from layerwise.core.display import printable
from layerwise.core.errors import InputError, RunError
from layerwise.core.formats import json_bytes, with_checksum
from layerwise.core.remote import RemoteFolder

MAX_NAME_LENGTH = 100  # characters; file systems allow 255 bytes, and suffixes are added to names
NAME_PUNCTUATION = " ._-+(),"


def host_id() -> str:
    """A short hash of machine and container; a process id is only meaningful within the same ones."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    with suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    return hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()


# A file being written: .NAME.HOST-PID-RANDOM.layerwise, so that a later run can tell which process left it behind.
HOST_ID = host_id()
TEMPORARY_FILE = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.layerwise")


def temporary_path(path: Path) -> Path:
    """A new name beside a file or folder, which it has while it is written."""
    return path.with_name(f".{path.name[:50]}.{HOST_ID}-{os.getpid()}-{secrets.token_hex(4)}.layerwise")


def is_abandoned(name: str) -> bool:
    """True if a name was given by `temporary_path`, in a process on this machine that has ended."""
    given = TEMPORARY_FILE.fullmatch(name)
    if given is None or given["host"] != HOST_ID:
        return False
    try:
        return not psutil.pid_exists(int(given["pid"]))
    except OverflowError:  # no process has such a number
        return False


def delete_abandoned(path: Path) -> None:
    """Deletes what killed processes have left beside a file or folder that they were writing."""
    start = f".{path.name[:50]}."
    for name in os.listdir(path.parent) if path.parent.is_dir() else []:
        if name.startswith(start) and is_abandoned(name):  # at each write, also in a folder of 20,000 files
            left = path.with_name(name)
            with suppress(OSError):  # another process deletes it too
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """Writes data to path so that a reader sees the old file or the new one, never a partial one."""
    with temporary_file(path, data) as temporary:
        os.replace(temporary, path)


def create_atomically(path: Path, data: bytes) -> bool:
    """Creates a file and returns True; returns False if another process created it first."""
    with temporary_file(path, data) as temporary:
        try:
            os.link(temporary, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
        try:  # a file system without links: still exclusive, but a reader may briefly see a partial file
            with path.open("xb") as file:
                file.write(data)
            return True
        except FileExistsError:
            return False


@contextmanager
def temporary_file(path: Path, data: bytes) -> Iterator[Path]:
    """A complete temporary file next to the target, deleted afterwards. Any failure is reported with the path."""
    temporary = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        delete_abandoned(path)
        try:
            with temporary.open("xb") as file:  # plain open, so that the user's umask applies
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space, or choose a path on another disk" if disk_full else "choose another path"
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def safe_name(name: Any, subject: str) -> str:
    """The name, if it is safe as a single path component; raises InputError otherwise."""
    text = name if isinstance(name, str) else ""
    if (
        not text.strip()
        or text[0] in ". "
        or len(text) > MAX_NAME_LENGTH
        or not all(character.isalnum() or character in NAME_PUNCTUATION for character in text)
    ):
        shown = printable(repr(name)) if len(repr(name)) <= 2 * MAX_NAME_LENGTH else f"of {len(repr(name))} characters"
        raise InputError(
            f"{subject} {shown} cannot be used as a file name; use 1 to {MAX_NAME_LENGTH} letters, digits and "
            f"{' '.join(NAME_PUNCTUATION.strip())}, not starting with a dot"
        )
    return text


def write_json(path: Path, content: Any) -> None:
    write_atomically(path, json_bytes(content))


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a record with a checksum, which `parse_record` verifies."""
    write_atomically(path, json_bytes(with_checksum(content)))


class Folder(Protocol):
    """Where a run is stored. Names are relative and use slashes. Every file is complete or absent. Can be pickled."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, or None if it does not exist."""

    def write(self, name: str, data: bytes) -> None: ...
    def create(self, name: str, data: bytes) -> bool:
        """Creates a file; returns False if it exists. On disk, exactly one of two competing processes succeeds."""

    def delete(self, names: Iterable[str]) -> None:
        """Deletes those of the files that exist."""

    def names(self, subfolder: str = "") -> list[str]:
        """The sorted names of the files in a subfolder, without hidden ones."""

    def entries(self) -> list[str]:
        """The sorted names of all files and folders, including hidden ones."""

    def clear(self, subfolder: str, pattern: re.Pattern[str]) -> None:
        """Deletes files whose names match, complete or partial, then the subfolder if it is empty."""


@dataclass(frozen=True)
class DiskFolder:
    """A folder on a disk that every process of the run can access under this path."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            raise RunError(f"{self.path} is a file; a run is a folder (--out takes a folder)") from None
        except OSError as error:  # a folder has this name, or no permission to read it
            raise RunError(f"cannot read {self.path / name} ({error.strerror}); expected a file") from None

    def write(self, name: str, data: bytes) -> None:
        write_atomically(self.path / name, data)

    def create(self, name: str, data: bytes) -> bool:
        return create_atomically(self.path / name, data)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def names(self, subfolder: str = "") -> list[str]:
        try:
            file_names = [path.name for path in (self.path / subfolder).iterdir() if path.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in file_names if not name.startswith("."))

    def entries(self) -> list[str]:
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def clear(self, subfolder: str, pattern: re.Pattern[str]) -> None:
        folder = self.path / subfolder
        for path in list(folder.iterdir()) if folder.is_dir() else []:
            half_written = TEMPORARY_FILE.fullmatch(path.name)
            if pattern.fullmatch(half_written["name"] if half_written else path.name) and not path.is_dir():
                path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty, or does not exist
            folder.rmdir()


def has_file(location: str | Path, name: str) -> bool:
    """True if the folder at a path or URL contains that file."""
    if "://" not in str(location):
        return (Path(location) / name).exists()
    return open_folder(location).read(name) is not None


def folder_name(location: str | Path) -> str:
    """The name of a folder, taken from its path or URL."""
    text = str(location)
    return Path(text.partition("?")[0] if "://" in text else text).name


def open_folder(location: str | Path, subfolder: str = "") -> Folder:
    """Opens the folder at a path or object-store URL, or a subfolder of it."""
    if not str(location).strip():
        raise InputError("the folder name is empty (an unset variable?); pass a folder, or . for the current one")
    if "://" not in str(location):
        require_file_name(location)
        return DiskFolder((Path(location) / subfolder).absolute())
    path, separator, options = str(location).partition("?")  # the options of a URL follow its path
    if not path.partition("://")[2].strip("/"):
        raise InputError(f"cannot use {str(location)!r} as a folder: it names no bucket or folder")
    return RemoteFolder("/".join(filter(None, [path.rstrip("/"), subfolder])) + separator + options)

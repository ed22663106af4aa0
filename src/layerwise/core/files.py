"""Files that are whole or absent, in a folder on disk or in an object store."""

import errno
import hashlib
import os
import platform
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from layerwise.core.display import printable
from layerwise.core.errors import InputError, RunError
from layerwise.core.formats import json_bytes
from layerwise.core.remote import RemoteFolder

NAME_LENGTH = 100  # characters; file systems take 255 bytes, and names get endings
NAME_SIGNS = " ._-+(),"


def this_host() -> str:
    """A short hash of the machine and the container: process numbers can be looked up only within the same ones."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    with suppress(OSError):
        parts.append(Path("/etc/machine-id").read_text(encoding="utf-8"))
    return hashlib.blake2b(repr(parts).encode(), digest_size=4).hexdigest()


# A file under construction: .NAME.HOST-PID-RANDOM.layerwise, so that a later run can tell who left it behind.
HOST = this_host()
TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.layerwise")


def write_atomically(path: Path, data: bytes) -> None:
    """Writes data to path so that a reader sees the old file or the new one, never a part."""
    with written_beside(path, data) as temporary:
        os.replace(temporary, path)


def create_atomically(path: Path, data: bytes) -> bool:
    """Writes data to a path where nothing is yet, and returns True; False where another process was there first."""
    with written_beside(path, data) as temporary:
        try:
            os.link(temporary, path)
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
    temporary = path.with_name(f".{path.name[:50]}.{HOST}-{os.getpid()}-{secrets.token_hex(4)}.layerwise")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:  # plain open: the user's umask decides who may read
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        disk_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space, or name a place on another disk" if disk_full else "name another place"
        raise InputError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


def safe_name(word: Any, what: str) -> str:
    """The word, if it can be one part of a path and nothing else; raises InputError where it cannot."""
    text = word if isinstance(word, str) else ""
    if (
        not text.strip()
        or text[0] in ". "
        or len(text) > NAME_LENGTH
        or not all(character.isalnum() or character in NAME_SIGNS for character in text)
    ):
        shown = printable(repr(word)) if len(repr(word)) <= 2 * NAME_LENGTH else f"of {len(repr(word))} characters"
        raise InputError(
            f"{what} {shown} cannot be used as a file name; use 1 to {NAME_LENGTH} letters, digits and "
            f"{' '.join(NAME_SIGNS.strip())}, not beginning with a dot"
        )
    return text


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
            file_names = [path.name for path in (self.path / within).iterdir() if path.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in file_names if not name.startswith("."))

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
    path, separator, options = str(place).partition("?")  # a url carries its options behind its path
    return RemoteFolder("/".join(filter(None, [path.rstrip("/"), within])) + separator + options)

"""Outputs: which files and folders a verb may write, so that no user file is lost."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import (
    HOST_ID,
    DiskFolder,
    Folder,
    delete_abandoned,
    is_abandoned,
    open_folder,
    temporary_path,
)


def require_path(path: str | Path) -> Path:
    """The path; raises if it is empty, as from an unset variable, instead of using the current folder, or a URL."""
    if not str(path).strip():
        raise InputError("the output name is empty (an unset variable?); pass a file or folder")
    if "://" in str(path):
        raise InputError(f"{path} is a URL, but this output must be on disk; pass a file or folder")
    return Path(path)


def require_writable(folder: Path) -> None:
    """Raises unless the folder is writable or can be created. Leaves nothing behind."""
    for candidate in (folder, *folder.parents):
        if candidate.is_dir():
            try:
                with tempfile.TemporaryFile(dir=candidate):
                    return
            except OSError as error:
                raise InputError(f"cannot write into {candidate} ({error.strerror}); name another folder") from None
        if os.path.lexists(candidate):
            problem = "a folder is needed there" if candidate == folder else f"{folder} cannot be made in it"
            raise InputError(f"{candidate} is a file; {problem}")


def require_new_file(
    path: str | Path, *, overwrite: bool = False, is_ours: Callable[[bytes], bool] = lambda start: False
) -> Path:
    """The path, if a file can be written there without losing user data; raises before anything is computed.

    An existing file is replaced only with `overwrite`, or if `is_ours` recognises its first 4096 bytes.
    """
    absolute = require_path(path).absolute()
    if absolute.is_dir():
        raise InputError(f"{path} is a folder; pass a file in it, such as {Path(path) / 'FILE'}")
    require_writable(absolute.parent)
    if not os.path.lexists(absolute):
        return Path(path)
    if not absolute.is_file():
        raise InputError(f"{path} is not a regular file; choose another")
    with absolute.open("rb") as file:
        if not overwrite and not is_ours(file.read(4096)):
            raise InputError(
                f"{path} already exists; pass --overwrite (overwrite=True) to replace it, or choose another name"
            )
    return Path(path)


def require_folder(location: str | Path, name: str) -> Folder:
    """The folder, if a file of that name can be written there; raises before anything is computed."""
    folder = open_folder(location)
    if isinstance(folder, DiskFolder):
        require_writable(folder.path)
        if (folder.path / name).is_dir():
            raise InputError(f"{folder.path / name} is a folder; choose another output folder")
    return folder


def require_record(location: str | Path, name: str, keys: Iterable[str]) -> Folder:
    """The folder, if a JSON record of that name can be written there; an existing file with other keys is not ours."""
    folder = require_folder(location, name)
    data = folder.read(name)
    if data is not None and not has_keys(data, keys):
        raise RunError(f"{name} in {folder} was not written by layerwise; move it, or choose another folder")
    return folder


def has_keys(data: bytes, keys: Iterable[str]) -> bool:
    try:
        record = json.loads(data)
    except ValueError:
        return False
    return isinstance(record, dict) and {*keys} <= {*record}


def delete_abandoned_files(path: Path) -> None:
    """Deletes partial files in a run folder whose writer, a process on this machine, has ended."""
    for directory, _, names in os.walk(path):  # does not follow links
        for name in names:
            if is_abandoned(name):
                (Path(directory) / name).unlink(missing_ok=True)


@contextmanager
def scratch_folder(name: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for temporary files, deleted afterwards; first deletes those that killed processes have left.

    Args:
        name: what it is for, part of its name.
        parent: where to create it; None for the system's folder for temporary files.
    """
    path = (Path(tempfile.gettempdir()) if parent is None else parent) / name
    delete_abandoned(path)
    folder = temporary_path(path)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def current_process() -> dict[str, Any]:
    """Identifies this process, so that another can tell whether it is still running."""
    return {"host": HOST_ID, "pid": os.getpid(), "began": psutil.Process().create_time()}


def has_ended(process: Any) -> bool:
    """True if the process described by `owner` is known to have ended."""
    try:
        return process["host"] == HOST_ID and bool(psutil.Process(process["pid"]).create_time() != process["began"])
    except psutil.NoSuchProcess:
        return True
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False

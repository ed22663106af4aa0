"""Outputs: which files and folders a verb may write, so that nothing of the user's is lost."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import HOST, TEMPORARY, DiskFolder, Folder, open_folder


def named(path: str | Path) -> Path:
    """The path; an empty name, such as that of an unset variable, is not the current folder."""
    if not str(path).strip():
        raise InputError("the name of the output is empty (an unset variable?); name a file or folder")
    return Path(path)


def require_writable(folder: Path) -> None:
    """Raises unless files can be written into the folder, or it can be made. Leaves no trace."""
    for candidate in (folder, *folder.parents):
        if candidate.is_dir():
            try:
                with tempfile.TemporaryFile(dir=candidate):
                    return
            except OSError as error:
                raise InputError(f"cannot write into {candidate} ({error.strerror}); name another folder") from None
        if os.path.lexists(candidate):
            problem = "--out names a folder" if candidate == folder else f"{folder} cannot be made in it"
            raise InputError(f"{candidate} is a file; {problem}")


def require_new_file(
    path: str | Path, *, overwrite: bool = False, ours: Callable[[bytes], bool] = lambda start: False
) -> Path:
    """The path, if a file can be written there and nothing of the user's is lost; raises before anything is computed.

    An existing file is replaced only with `overwrite`, or where `ours` recognises its first 4096 bytes.
    """
    absolute = named(path).absolute()
    if absolute.is_dir():
        raise InputError(f"{path} is a folder; name a file in it, such as {Path(path) / 'FILE'}")
    require_writable(absolute.parent)
    if not os.path.lexists(absolute):
        return Path(path)
    if not absolute.is_file():
        raise InputError(f"{path} is not an ordinary file; name another")
    with absolute.open("rb") as file:
        if not overwrite and not ours(file.read(4096)):
            raise InputError(f"{path} exists already; pass --overwrite (overwrite=True) to replace it, or name another")
    return Path(path)


def require_folder(place: str | Path, name: str) -> Folder:
    """The folder, if a file can be written there under that name; raises before anything is computed."""
    folder = open_folder(place)
    if isinstance(folder, DiskFolder):
        require_writable(folder.path)
        if (folder.path / name).is_dir():
            raise InputError(f"{folder.path / name} is a folder; name another folder")
    return folder


def require_record(place: str | Path, name: str, keys: Iterable[str]) -> Folder:
    """The folder, if a JSON record can be written there under that name; a file with other keys is the user's."""
    folder = require_folder(place, name)
    data = folder.read(name)
    if data is not None and not has_keys(data, keys):
        raise RunError(f"{name} in {folder} was not written by layerwise; move it away, or pass another folder")
    return folder


def has_keys(data: bytes, keys: Iterable[str]) -> bool:
    try:
        record = json.loads(data)
    except ValueError:
        return False
    return isinstance(record, dict) and {*keys} <= {*record}


def delete_left_behind(path: Path) -> None:
    """Deletes half-written files in a marked folder whose writer, a process of this machine, is gone."""
    for directory, _, names in os.walk(path):  # does not follow links
        for name in names:
            half_written = TEMPORARY.fullmatch(name)
            if half_written and half_written["host"] == HOST and not psutil.pid_exists(int(half_written["pid"])):
                (Path(directory) / name).unlink(missing_ok=True)


def owner() -> dict[str, Any]:
    """This process, so that another can tell whether it still runs."""
    return {"host": HOST, "pid": os.getpid(), "began": psutil.Process().create_time()}


def is_gone(process: Any) -> bool:
    """True if that process, as `owner` described it, is known to have ended."""
    try:
        return process["host"] == HOST and bool(psutil.Process(process["pid"]).create_time() != process["began"])
    except psutil.NoSuchProcess:
        return True
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False

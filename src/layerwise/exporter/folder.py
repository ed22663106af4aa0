"""The folder of an export: built beside its place, moved there when it is proved, deleted when it is not."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layerwise.core.errors import InputError
from layerwise.core.files import write_json
from layerwise.core.outputs import is_gone, named, owner, require_writable

OWNER_FILE = "layerwise-export.json"  # in a folder under construction: which process makes it


def require_new_folder(out: str | Path) -> None:
    """Raises unless a new folder can be made there; before anything is computed, and leaving no trace."""
    if os.path.lexists(named(out)):
        raise InputError(f"{out} exists already; choose another folder, or delete it first")
    require_writable(Path(out).absolute().parent)


def apply_umask(folder: Path) -> None:
    """Gives files and folders the usual rights: temporary ones are readable by their owner alone."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


@contextmanager
def folder_beside(out: Path) -> Iterator[Path]:
    """A new folder beside `out` that takes its place when all went well, and is deleted when not."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        delete_left_behind(out)
        temporary = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise InputError(f"cannot write to {out.parent} ({error.strerror}); choose another folder") from None
    try:
        write_json(temporary / OWNER_FILE, owner())
        model_folder = temporary / "model"
        model_folder.mkdir()
        yield model_folder
        apply_umask(model_folder)
        move_into_place(model_folder, out)
    except BaseException as error:
        if os.strerror(errno.ENOSPC) in str(error):  # safetensors reports it under an error class of its own
            raise InputError(f"the disk of {out.parent} is full; nothing was left there, choose another") from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_into_place(model_folder: Path, out: Path) -> None:
    try:
        os.replace(model_folder, out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        problem = "was made by another process meanwhile, so this export was not kept"
        raise InputError(f"{out} {problem}; choose another folder") from None


def delete_left_behind(out: Path) -> None:
    """Deletes what a killed export to this name left beside it: marked as ours, by a process that has ended."""
    for path in list(out.parent.iterdir()):
        if path.name.startswith(f".{out.name}.") and (path / OWNER_FILE).is_file():
            try:
                ended = is_gone(json.loads((path / OWNER_FILE).read_bytes()))
            except ValueError:
                continue
            if ended:
                shutil.rmtree(path, ignore_errors=True)

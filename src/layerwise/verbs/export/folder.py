"""The folder of an export: built in a temporary folder, moved into place if verified, otherwise deleted."""

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
from layerwise.core.outputs import current_process, has_ended, require_path, require_writable

OWNER_FILE = "layerwise-export.json"  # in an unfinished folder: the process that writes it


def require_new_folder(out: str | Path) -> None:
    """Raises before anything is computed unless a new folder can be created there. Leaves nothing behind."""
    if os.path.lexists(require_path(out)):
        raise InputError(f"{out} already exists; choose another folder, or delete it first")
    require_writable(Path(out).absolute().parent)


def apply_umask(folder: Path) -> None:
    """Applies the user's umask: temporary files are readable only by their owner."""
    umask = os.umask(0)
    os.umask(umask)
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


@contextmanager
def temporary_folder(out: Path) -> Iterator[Path]:
    """A temporary folder next to `out`; moved into place on success, deleted on failure."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        delete_abandoned_folders(out)
        temporary = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise InputError(f"cannot write to {out.parent} ({error.strerror}); choose another folder") from None
    try:
        write_json(temporary / OWNER_FILE, current_process())
        model_folder = temporary / "model"
        model_folder.mkdir()
        yield model_folder
        apply_umask(model_folder)
        move_into_place(model_folder, out)
    except BaseException as error:
        if os.strerror(errno.ENOSPC) in str(error):  # safetensors has its own error class for this
            raise InputError(f"the disk of {out.parent} is full; nothing was saved; choose another folder") from None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_into_place(model_folder: Path, out: Path) -> None:
    try:
        os.replace(model_folder, out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        problem = "was created by another process in the meantime, so this export was deleted"
        raise InputError(f"{out} {problem}; choose another folder") from None


def delete_abandoned_folders(out: Path) -> None:
    """Deletes temporary folders of killed exports to this name whose process has ended."""
    for path in list(out.parent.iterdir()):
        if path.name.startswith(f".{out.name}.") and (path / OWNER_FILE).is_file():
            try:
                ended = has_ended(json.loads((path / OWNER_FILE).read_bytes()))
            except ValueError:
                continue
            if ended:
                shutil.rmtree(path, ignore_errors=True)

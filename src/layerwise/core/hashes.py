"""Hashes of large files: computed once, then found again by path, size and time; the hub's own where it names them.

A file in the hub's cache is a link to a blob that is named by its SHA-256, so nothing has to be read. Any other file is
read once; its hash is kept in a small file of its own under the cache folder, so that processes that start together
need no lock. It is found again by path, size, inode and both times of change; a file that was changed within the last
seconds is hashed, but not remembered: a second change could leave all of them as they are.
"""

import hashlib
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from layerwise.core.errors import InputError
from layerwise.core.files import write_atomically

CACHE_VARIABLE = "LAYERWISE_CACHE"
SHA256 = re.compile(r"[0-9a-f]{64}")
SECONDS_UNTIL_SETTLED = 2.0

Known = Mapping[str, str]  # hashes that another process found, by path, size and time


def cache_folder() -> Path:
    """Where layerwise keeps what it can compute again: $LAYERWISE_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "layerwise"
    return Path(os.environ.get(CACHE_VARIABLE) or default)


def file_hash(path: Path, known: Known | None = None) -> str:
    """The SHA-256 of a file's bytes. `known` are hashes that were handed over; they count while size and time agree."""
    blob = path.resolve()
    if blob.parent.name == "blobs" and SHA256.fullmatch(blob.name):
        return blob.name  # as the hub's cache keeps large files
    if known and (known_hash := known.get(identity_of(blob))):
        return known_hash
    stat = blob.stat()
    changed = max(stat.st_mtime, stat.st_ctime)  # a copy may bear the time of its original
    if time.time() - changed <= SECONDS_UNTIL_SETTLED:
        return sha256_of(blob)
    return _hash_once(blob, f"{identity_of(blob)}\0{stat.st_ctime_ns}\0{stat.st_ino}")


def identity_of(path: Path) -> str:
    """What tells processes that see the same files whether they mean the same one: its path, size and time."""
    stat = path.stat()
    return f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}"


@lru_cache(maxsize=4096)
def _hash_once(path: Path, identity: str) -> str:
    cache_file = (
        cache_folder() / "hashes" / hashlib.blake2b(identity.encode("utf-8", "surrogateescape")).hexdigest()[:40]
    )
    with suppress(OSError, UnicodeDecodeError):
        if SHA256.fullmatch(cached := cache_file.read_text(encoding="ascii").strip()):
            return cached
    digest = sha256_of(path)
    if identity.startswith(f"{identity_of(path)}\0"):  # else it changed while it was read
        with suppress(OSError, InputError):  # a cache that cannot be written only costs time
            write_atomically(cache_file, digest.encode())
    return digest


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

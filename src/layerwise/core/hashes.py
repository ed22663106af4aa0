"""Hashes of large files: computed once and cached by path, size and time.

A file is read once; its hash is stored in its own small file in the cache folder, so that processes started together
need no lock. The cache key is path, size, inode, mtime and ctime. A file changed within the last seconds is hashed but
not cached: a second change could leave the key unchanged. The hub's cache names large files after their SHA-256, but a
name does not say that the content is still the same, so those are read as well.
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
from layerwise.core.outputs import delete_abandoned_files

CACHE_VARIABLE = "LAYERWISE_CACHE"
SHA256 = re.compile(r"[0-9a-f]{64}")
SECONDS_UNTIL_SETTLED = 2.0

KnownHashes = Mapping[str, str]  # hashes computed by another process, by path, size and time


def cache_folder() -> Path:
    """The cache folder: $LAYERWISE_CACHE, or a folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "layerwise"
    return Path(os.environ.get(CACHE_VARIABLE) or default)


def file_hash(path: Path, known_hashes: KnownHashes | None = None) -> str:
    """The SHA-256 of a file. `known_hashes` holds hashes passed on by another process, used if size and time match."""
    blob = path.resolve()
    if known_hashes and (known_hash := known_hashes.get(file_identity(blob))):
        return known_hash
    stat = blob.stat()
    changed = max(stat.st_mtime, stat.st_ctime)  # a copy may keep the mtime of the original
    if time.time() - changed <= SECONDS_UNTIL_SETTLED:
        return file_sha256(blob)
    return _hash_once(blob, f"{file_identity(blob)}\0{stat.st_ctime_ns}\0{stat.st_ino}")


def file_identity(path: Path) -> str:
    """Identifies a file across processes by path, size and time."""
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
    digest = file_sha256(path)
    if identity.startswith(f"{file_identity(path)}\0"):  # otherwise it changed while being read
        with suppress(OSError, InputError):  # without a writable cache this is only slower
            write_atomically(cache_file, digest.encode())
            delete_abandoned_files(cache_file.parent)
    return digest


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""What the studies of cheaper models keep on disk: rows of tables, and what was computed of a model."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd


def add_rows(path: Path, rows: pd.DataFrame, keys: Sequence[str]) -> None:
    """Replaces the rows of a table that have these keys, and keeps the others."""
    if path.is_file():
        rows = pd.concat([pd.read_csv(path), rows], ignore_index=True).drop_duplicates(list(keys), keep="last")
    rows.to_csv(path, index=False)


@cache
def model_key(folder: Path) -> str:
    """The name of a model's folder and a hash of its files: a model that is made anew has another key."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return f"{folder.name}-{digest.hexdigest()}"

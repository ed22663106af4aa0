"""Plain tables from files, for labels and scores."""

from pathlib import Path
from typing import Any

from layerwise.errors import InputError


def read_table(path: str | Path) -> Any:
    """A data frame from a .parquet, .csv or .jsonl file."""
    import pandas as pd

    readers = {".parquet": pd.read_parquet, ".csv": pd.read_csv, ".jsonl": lambda p: pd.read_json(p, lines=True)}
    if not Path(path).is_file():
        raise InputError(f"no file {str(path)!r}")
    if Path(path).suffix not in readers:
        raise InputError(f"cannot read {str(path)!r}; pass a .parquet, .csv or .jsonl file")
    return readers[Path(path).suffix](path)

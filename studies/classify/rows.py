"""scores.csv: one row per model, method, data set, shots and seed; which test examples are right is packed into it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TABLE = Path(__file__).parent / "scores.csv"
KEYS = ["model", "method", "data", "shots", "seed"]
COLUMNS = [*KEYS, "layer", "norm", "train", "n", "accuracy", "reading", "fitting", "settings", "correct"]


def packed(right: Any) -> str:
    """Right or wrong, for each test example in the order of its hash, as hexadecimal digits."""
    return bytes(np.packbits(np.asarray(right, dtype=bool))).hex()


def unpacked(row: Any) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(row.correct), dtype=np.uint8))
    return bits[: row.n].astype(bool)


def add_row(row: dict[str, Any]) -> None:
    row = row | {"accuracy": round(100 * float(unpacked(pd.Series(row)).mean()), 2)}
    row |= {name: round(row[name], 2) for name in ("reading", "fitting")}
    table = pd.DataFrame([row]).reindex(columns=COLUMNS).astype({"layer": "Int64"})
    if TABLE.is_file():
        before = pd.read_csv(TABLE, dtype={"layer": "Int64"})
        same = np.logical_and.reduce([before[key] == row[key] for key in KEYS])
        table = pd.concat([before[~same], table])
    table.sort_values(KEYS).to_csv(TABLE, index=False)
    print({name: row.get(name) for name in COLUMNS[:-1]}, flush=True)

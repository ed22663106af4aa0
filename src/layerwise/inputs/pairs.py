"""Pairs of texts, clips or images that belong together, such as a query and the document that answers it."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.errors import InputError
from layerwise.inputs.media import Medium
from layerwise.inputs.options import MediaPairsLike, PairsLike
from layerwise.inputs.source import Payload
from layerwise.inputs.tables import read_table, text_column

PAIR_COLUMNS = ("query", "document")
USUAL_NAMES = {
    "query": ("question", "queries", "anchor", "title"),
    "document": ("answer", "passage", "positive", "doc", "context", "documents", "text"),
}


def read_pairs(pairs: PairsLike) -> tuple[str, list[tuple[str, str]]]:
    """The name of a table of pairs and its rows: a file, a data frame, or a list of (query, document)."""
    if not isinstance(pairs, str | Path | pd.DataFrame):
        rows = list(pairs)
        for row, pair in enumerate(rows, start=1):
            if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise InputError(f"pairs, row {row}: expected two texts, a query and its document, not {pair!r}")
        return f"a list of {len(rows)} pairs", [(query, document) for query, document in rows]
    name, table = pair_table(pairs)
    return name, list(zip(*(text_column(table, column, name) for column in PAIR_COLUMNS), strict=True))


def read_media_pairs(pairs: MediaPairsLike, medium: Medium) -> tuple[str, list[tuple[Payload, Payload]]]:
    """The same for a model that takes clips or images.

    A cell holds what a column of clips or images may hold, such as a path; it is relative to the folder of the table.
    """
    if isinstance(pairs, str | Path | pd.DataFrame):
        name, table = pair_table(pairs)
        folder = Path(pairs).parent if isinstance(pairs, str | Path) else Path()
        rows: list[Any] = list(zip(*(table[column] for column in PAIR_COLUMNS), strict=True))
    else:
        rows, folder = list(pairs), Path()
        name = f"a list of {len(rows)} pairs"
    found = []
    for row, pair in enumerate(rows, start=1):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"{name}, row {row}: expected two {medium.plural}, not {type(pair).__name__}")
        first, second = (medium.payload_of(cell, f"{name}, row {row}", folder) for cell in pair)
        found.append((first, second))
    return name, found


def pair_table(pairs: str | Path | pd.DataFrame) -> tuple[str, pd.DataFrame]:
    """The name of a table of pairs, and the table; raises if it lacks a column."""
    table = read_table(pairs) if isinstance(pairs, str | Path) else pairs
    name = str(pairs) if isinstance(pairs, str | Path) else f"a table of {len(table)} pairs"
    columns = [str(column) for column in table.columns]
    for column in PAIR_COLUMNS:
        if column not in columns:
            near = get_close_matches(column, columns, 1) or [name for name in USUAL_NAMES[column] if name in columns]
            advice = f"rename {near[0]} to {column}" if near else "pairs need the columns query and document"
            raise InputError(f"{name} has no column {column!r}; it has {', '.join(columns)}; {advice}")
    return name, table

"""Pairs of texts that belong together: a query and the document that answers it."""

from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from layerwise.core.errors import InputError
from layerwise.inputs.options import PairsLike
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
    table = read_table(pairs) if isinstance(pairs, str | Path) else pairs
    name = str(pairs) if isinstance(pairs, str | Path) else f"a table of {len(table)} pairs"
    columns = [str(column) for column in table.columns]
    for column in PAIR_COLUMNS:
        if column not in columns:
            near = get_close_matches(column, columns, 1) or [name for name in USUAL_NAMES[column] if name in columns]
            advice = f"rename {near[0]} to {column}" if near else "pairs need the columns query and document"
            raise InputError(f"{name} has no column {column!r}; it has {', '.join(columns)}; {advice}")
    return name, list(zip(*(text_column(table, column, name) for column in PAIR_COLUMNS), strict=True))

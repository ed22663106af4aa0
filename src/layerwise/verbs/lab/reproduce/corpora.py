"""Corpora of controlled diversity: as many texts each, from few or from many classes of one labelled table."""

from collections.abc import Iterator, Sequence

import pandas as pd

from layerwise.core.errors import InputError
from layerwise.inputs.source import hash_id


def corpora(
    frame: pd.DataFrame, label: str, classes: Sequence[int], texts: int, column: str = "text"
) -> Iterator[tuple[int, pd.DataFrame]]:
    """For each number of classes, a table of that many texts, the same number of each class.

    Classes and texts are taken in the order of their hashes, so that the classes of a smaller corpus are among those of
    a larger one.
    """
    order = sorted(frame[label].unique(), key=lambda name: hash_id(str(name)))
    for count in classes:
        per_class, rest = divmod(texts, count)
        sizes = frame[label].value_counts()
        chosen = [name for name in order if sizes[name] >= per_class][:count]
        if rest or len(chosen) < count:
            raise InputError(f"{texts} texts cannot be taken in equal parts from {count} classes of {label}")
        shuffled = frame.loc[sorted(frame.index, key=lambda row: hash_id(str(frame[column][row])))]
        kept = [shuffled[shuffled[label] == name].head(per_class) for name in chosen]
        yield count, pd.concat(kept)[[column, label]].reset_index(drop=True)

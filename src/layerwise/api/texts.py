"""texts: open texts with options."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from layerwise.inputs.source import Source
from layerwise.inputs.text import open_texts
from layerwise.options.texts import TextFilter


def texts(
    data: str | Path | Iterable[str],
    *,
    column: str = "text",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    only: TextFilter | None = None,
    min_tokens: int = 0,
    tokenizer: Callable[..., Mapping[str, Any]] | None = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """Opens texts with options, for every function that takes data. They are filtered first and then cut.

    Args:
        data: a list of texts, a .txt, .jsonl, .csv or .parquet file, `-` for standard input, a hub data set, or `demo`.
        column: the column with the text.
        id_column: the column with the id of each text; default: a hash of the text.
        split: the split of a hub data set.
        config: the configuration of a hub data set.
        only: "wikitext" drops headings and blanks, as the paper does; None keeps everything.
        min_tokens: drop texts that `tokenizer` makes shorter than this; 0 keeps all.
        tokenizer: a transformers tokenizer that counts the tokens; needed with `min_tokens`.
        limit: keep the first texts, this many; None keeps all.
        sample: keep a random sample of this many, chosen by hashed ids; None keeps all.

    Returns:
        A Source that can be iterated again and again; each example has an `id` and a `text`.

    Raises:
        InputError: a file or column does not exist, or an option cannot be used.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> source = layerwise.texts(texts, limit=3)
        >>> [example.text for example in source] == texts[:3]
        True
    """
    return open_texts(
        data,
        column=column,
        id_column=id_column,
        split=split,
        config=config,
        only=only,
        min_tokens=min_tokens,
        tokenizer=tokenizer,
        limit=limit,
        sample=sample,
    )

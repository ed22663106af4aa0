"""texts: where texts come from, with options."""

from typing import Any

from layerwise.inputs.source import Source
from layerwise.inputs.text import open_texts


def texts(data: Any, **options: Any) -> Source:
    """Texts with options: column, id_column, split, config, only ("wikitext"), min_tokens, tokenizer, limit, sample."""
    return open_texts(data, **options)

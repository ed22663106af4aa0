"""Tokenizes texts, truncated to max_length, and reports what was truncated."""

import math
from collections.abc import Sequence
from typing import Any

from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.tokens import Tokens
from layerwise.inputs.tables import require_no_surrogates

SAMPLE_TEXT = "Some words."
MIN_DISTINCT_TEXTS = 8  # distinct texts; a few may get the same tokens by chance


def encode_texts(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[tuple[Tokens, bool]]:
    """Token ids of each text with special tokens, and whether the text was truncated.

    A text without tokens becomes one padding token, since the model needs at least one.
    """
    if not texts:
        return []
    special_count = getattr(tokenizer, "num_special_tokens_to_add", lambda: 0)()
    if max_length <= special_count:
        reason = f"the tokenizer adds {special_count} special tokens, those of a template included"
        raise InputError(
            f"max_length {max_length} leaves no room for the text: {reason}; use at least {special_count + 1}"
        )
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length, add_special_tokens=True)
    require_distinct_tokens(texts, encoded["input_ids"])
    fast_encodings = getattr(encoded, "encodings", None)
    return [
        (
            tuple(ids) or (tokenizer.pad_token_id,),
            bool(fast_encodings[i].overflowing) if fast_encodings else len(ids) == max_length,
        )
        for i, ids in enumerate(encoded["input_ids"])
    ]


def ids_added_by(tokenizer: Any) -> list[int]:
    """The ids that the tokenizer puts around a text by itself. `[UNK]` is not one: it stands for a word of the text."""
    with_added, without = (tokenizer(SAMPLE_TEXT, add_special_tokens=added)["input_ids"] for added in (True, False))
    return sorted(set(with_added) - set(without))


def require_distinct_tokens(texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
    """Raises if many different texts get the same tokens: their vectors would all be equal."""
    if len(distinct := set(texts)) >= MIN_DISTINCT_TEXTS and len(set(map(tuple, ids))) == 1:
        raise InputError(
            f"{len(distinct)} different texts get the same tokens: the tokenizer knows none of their words, or "
            "max_length is too small. Is this the model's own tokenizer?"
        )


def count_tokens(tokenizer: Any, text: str) -> float:
    """The number of tokens of a text; infinity if the text is invalid, so that the later computation reports it."""
    try:
        return len(tokenizer(require_no_surrogates(text, "a text"))["input_ids"])
    except InputError:
        return math.inf

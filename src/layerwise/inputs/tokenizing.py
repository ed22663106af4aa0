"""Tokenizes texts, truncated to max_length, and reports what was truncated."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.tokens import Tokens
from layerwise.inputs.tables import require_no_surrogates

SAMPLE_TEXT = "Some words."
MIN_DISTINCT_TEXTS = 8  # distinct texts; a few may get the same tokens by chance


def encode_texts(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[tuple[Tokens, bool]]:
    """Token ids of each text with special tokens, and whether the text was truncated."""
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
            tuple(ids),
            bool(fast_encodings[i].overflowing) if fast_encodings else len(ids) == max_length,
        )
        for i, ids in enumerate(encoded["input_ids"])
    ]


class AddedIds(NamedTuple):
    """The ids that a tokenizer adds to a text by itself: what is left out by tokens no_special and no_first.

    They are left out wherever they occur, also where a text itself contains `[SEP]` or `<s>`, because an exported model
    can tell tokens apart by their ids only. Padding is not one of them: the attention mask says where it is. Neither is
    `[UNK]`, which stands for a word of the text.
    """

    special: frozenset[int]
    opening: int | None  # the one that it puts before every text, if it does


def added_ids(tokenizer: Any) -> AddedIds:
    """Asks the tokenizer each time: its settings may have changed."""
    with_added, without = (tokenizer(SAMPLE_TEXT, add_special_tokens=added)["input_ids"] for added in (True, False))
    special = frozenset(with_added) - frozenset(without)
    return AddedIds(special, with_added[0] if with_added and with_added[0] in special else None)


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

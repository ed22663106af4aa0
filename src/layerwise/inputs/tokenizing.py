"""From texts to token ids: cut to the longest length, and whether anything was cut."""

import math
from collections.abc import Sequence
from typing import Any

from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.tokens import Tokens
from layerwise.inputs.tables import require_whole_characters

ENOUGH_TO_TELL = 8  # different texts: a few may be alike to a tokenizer by chance


def encode_texts(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[tuple[Tokens, bool]]:
    """Token ids of each text, special tokens as the tokenizer adds them, and whether the text was cut.

    A text without any token becomes one padding token, since something must pass through the model.
    """
    if not texts:
        return []
    own = getattr(tokenizer, "num_special_tokens_to_add", lambda: 0)()
    if max_length <= own:
        reason = f"the tokenizer adds {own} tokens of its own; use at least {own + 1}"
        raise InputError(f"max_length {max_length} leaves no room for the text: {reason}")
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length, add_special_tokens=True)
    require_different(texts, encoded["input_ids"])
    fast = getattr(encoded, "encodings", None)
    return [
        (tuple(ids) or (tokenizer.pad_token_id,), bool(fast[i].overflowing) if fast else len(ids) == max_length)
        for i, ids in enumerate(encoded["input_ids"])
    ]


def require_different(texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
    """Raises where many different texts become the same tokens: all their vectors would be equal."""
    if len(different := set(texts)) >= ENOUGH_TO_TELL and len(set(map(tuple, ids))) == 1:
        raise InputError(
            f"{len(different)} different texts become the same tokens: the tokenizer knows none of their words, or "
            "max_length is too small. Is this the model's own tokenizer?"
        )


def tokens_in(tokenizer: Any, text: str) -> float:
    """How many tokens a text has; infinity where it cannot be told, so that it is named where it is computed."""
    try:
        return len(tokenizer(require_whole_characters(text, "a text"))["input_ids"])
    except InputError:
        return math.inf

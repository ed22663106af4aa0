"""From texts to token ids: cut to the longest length, with what was cut and what was added on record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import InputError
from layerwise.inputs.source import Example
from layerwise.inputs.tables import require_whole_characters
from layerwise.inputs.views import STRENGTH, make_view

ENOUGH_TO_TELL = 8  # different texts: a few may be alike to a tokenizer by chance


@dataclass(frozen=True)
class Encoded:
    """An example as the model sees it: the token ids of each view (the original first), and its names."""

    id: str
    key: int
    views: tuple[tuple[int, ...], ...]
    cut: bool = False  # the original was longer than the longest length
    digest: int = 0  # of id and text

    @property
    def longest(self) -> int:
        return max(map(len, self.views))


def encode_texts(tokenizer: Any, texts: Sequence[str], max_length: int) -> list[tuple[tuple[int, ...], bool]]:
    """Token ids of each text, special tokens as the tokenizer adds them, and whether the text was cut.

    A text without any token becomes one padding token, since something must pass through the model.
    """
    if not texts:
        return []
    own = getattr(tokenizer, "num_special_tokens_to_add", lambda: 0)()
    if max_length <= own:
        told = f"the tokenizer adds {own} tokens of its own; use at least {own + 1}"
        raise InputError(f"max_length {max_length} leaves no room for the text: {told}")
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


def encode_examples(
    tokenizer: Any,
    examples: Sequence[Example],
    max_length: int,
    *,
    views: int = 0,
    seed: int = 0,
    strength: float = STRENGTH,
) -> list[Encoded]:
    """Examples ready for a pass, each with so many perturbed views behind the original."""
    for example in examples:
        require_whole_characters(example.text, f"example {example.id}")
    texts = [
        text
        for e in examples
        for text in (e.text, *(make_view(e.text, seed, e.id, v, strength) for v in range(1, views + 1)))
    ]
    found = iter(encode_texts(tokenizer, texts, max_length))
    encoded = []
    for example in examples:
        (original, cut), *others = [next(found) for _ in range(1 + views)]
        ids = (original, *(ids for ids, _ in others))
        encoded.append(Encoded(example.id, example.key, ids, cut, example.digest))
    return encoded

"""From texts to token ids: cut to the longest length, with what was cut and what was added on record."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.inputs.source import Example
from layerwise.inputs.views import STRENGTH, make_view


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
    encoded = tokenizer(list(texts), truncation=True, max_length=max_length, add_special_tokens=True)
    fast = getattr(encoded, "encodings", None)
    return [
        (tuple(ids) or (tokenizer.pad_token_id,), bool(fast[i].overflowing) if fast else len(ids) == max_length)
        for i, ids in enumerate(encoded["input_ids"])
    ]


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

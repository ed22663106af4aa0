"""The texts for shrinking a model: each with a prompt of the model, divided into those to fit, choose and check."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from layerwise.core.errors import InputError

FEWEST_TEXTS = 50
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 500  # of the texts, for choosing; the same number for checking


class PromptedText(NamedTuple):
    """A text, and the prompt that the model reads before it."""

    text: str
    prompt: str = ""


@dataclass(frozen=True)
class TextSplit:
    """Disjoint texts: `fit` for fitting and training, `held_out` for choosing, `check` for the reported figures."""

    fit: tuple[PromptedText, ...]
    held_out: tuple[PromptedText, ...]
    check: tuple[PromptedText, ...]


def split_texts(texts: Iterable[str], prompts: Sequence[str], seed: int) -> TextSplit:
    """Divides the distinct texts in an order that depends on the seed and on the texts alone.

    Of texts that differ only in case or white space one is kept, so that none is both fitted on and checked with. With
    several prompts, such as one for queries and one for documents, they take turns.
    """
    by_words: dict[str, str] = {}
    for text in texts:
        words = " ".join(text.split()).casefold()
        by_words[words] = min(text, by_words.get(words, text))  # whatever their order
    distinct = [text for words, text in by_words.items() if words]
    if len(distinct) < FEWEST_TEXTS:
        raise InputError(
            f"this needs at least {FEWEST_TEXTS} different texts to fit and check, got {len(distinct)}; pass a "
            "file with more (some thousands give a better model)"
        )
    ordered = sorted(distinct, key=lambda text: shuffle_key(text, seed))
    prompted = [PromptedText(text, prompts[i % len(prompts)]) for i, text in enumerate(ordered)]
    held = min(MOST_HELD_OUT, int(HELD_OUT_SHARE * len(prompted)))
    return TextSplit(tuple(prompted[2 * held :]), tuple(prompted[:held]), tuple(prompted[held : 2 * held]))


def shuffle_key(text: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

"""Short texts to fit on that need no data: parts of the given texts, and random words of the vocabulary.

What they give to a linear map is in maps.csv. `layerwise shrink` does not use them.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from layerwise.verbs.shrink.texts import PromptedText

PART_WORDS = (2, 9)  # of a part of a text
MOST_RANDOM_WORDS = 8  # in a text of random words
PART_CHARACTERS = (4, 18)  # of a part of a text without spaces
ENOUGH_WORDS = 5000
RANDOM_SHARE = 0.5  # texts of random words per text


def parts_of(texts: Sequence[PromptedText], seed: int) -> Iterator[PromptedText]:
    """One part of each text that is longer than a part may be, read with the same prompt."""
    for item in texts:
        chance = random.Random(f"part {seed} {item.text}")
        words = item.text.split()
        is_divided = len(words) > 1  # into words; a text in Chinese or Japanese has no spaces
        units, (shortest, longest) = (words, PART_WORDS) if is_divided else (list(item.text), PART_CHARACTERS)
        if len(units) > longest:
            length = chance.randint(shortest, longest)
            start = chance.randrange(len(units) - length + 1)
            yield item._replace(text=(" " if is_divided else "").join(units[start : start + length]))


def random_words(texts: Sequence[PromptedText], words: Sequence[str], seed: int) -> Iterator[PromptedText]:
    """Texts of a few words that have nothing to do with one another, with the prompts of every other text."""
    if words:
        for item in texts[:: round(1 / RANDOM_SHARE)]:
            chance = random.Random(f"words {seed} {item.text}")
            yield item._replace(text=" ".join(chance.choices(words, k=chance.randint(1, MOST_RANDOM_WORDS))))


def whole_words(tokenizer: Any, seed: int) -> list[str]:
    """Words that are one token each, by a seed; subwords and signs are left out."""
    ids = sorted(tokenizer.get_vocab().values())
    random.Random(seed).shuffle(ids)
    tokens = (tokenizer.decode([number]).strip() for number in ids)
    words = (word for word in tokens if len(word) > 2 and word.isalpha() and is_one_token(tokenizer, word))
    return list(islice(words, ENOUGH_WORDS))


def is_one_token(tokenizer: Any, word: str) -> bool:
    """True if the word stands for itself: a subword such as ##ing would be read as another token."""
    return len(tokenizer.tokenize(f"a {word}")) == len(tokenizer.tokenize("a")) + 1

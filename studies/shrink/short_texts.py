"""Short texts to train on that need no data: words of the model's vocabulary, and requests made of them."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from layerwise.verbs.shrink.texts import PART_WORDS

# What is said to a machine or typed into a search field; {} stands for a word of the vocabulary.
REQUESTS = """
how do i {} my {} | how can i {} a {} | what is {} | what is the {} of the {} | why is my {} {} |
why was my {} not {} | where is my {} | where can i find {} {} | when will my {} {} | who is the {} of {} |
can i {} my {} with a {} | can you {} the {} | could you {} {} | please {} my {} | i want to {} a {} |
i need a {} for my {} | i did not {} this {} | my {} is {} | my {} does not {} | the {} has not {} |
is there a {} for {} | do you have {} {} | {} the {} | {} my {} at {} | {} {} near me | tell me about {} |
show me the {} {} | give me a {} about {} | set a {} for {} | turn the {} {} | play {} by {} |
remind me to {} the {} | send a {} to {} | {} or {} | how much is a {} | how many {} are in {} |
how long does a {} take | what are the best {} for {} | what does {} mean | {} vs {} |
difference between {} and {} | {} not working | {} error when {} | unable to {} {} | help with {} {} |
i lost my {} what should i do
"""


def word_texts(vocabulary: Sequence[str], count: int, generator: random.Random) -> Iterator[str]:
    """Texts of random words."""
    for _ in range(count):
        yield " ".join(generator.choices(vocabulary, k=generator.randint(*PART_WORDS)))


def request_texts(vocabulary: Sequence[str], count: int, generator: random.Random) -> Iterator[str]:
    """Requests about random words."""
    forms = [form.strip() for form in REQUESTS.split("|")]
    for _ in range(count):
        form = generator.choice(forms)
        yield form.format(*generator.choices(vocabulary, k=form.count("{}")))


def vocabulary_words(tokenizer: Any) -> list[str]:
    """The entries of a vocabulary that are words of letters alone, in alphabetical order.

    An entry begins a word if the tokenizer puts a space before it when another entry comes first.
    """
    entries = sorted(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens))
    first = next((entry for entry in entries if entry.isalpha()), None)
    if first is None:
        return []
    joined = (tokenizer.convert_tokens_to_string([first, entry]).partition(" ") for entry in entries)
    return sorted({word for _, space, word in joined if space and len(word) > 1 and word.isalpha()})

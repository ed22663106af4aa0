"""Made requests: short English texts that a student is trained on beside the given ones.

Given texts are often sentences, and a student of sentences alone forgets how the original reads what people type
(studies/shrink). A form with random words of the model's vocabulary needs no data, and does not have to make sense: the
student imitates the original on whatever it reads.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from layerwise.verbs.shrink.texts import PromptedText, words_of

# What is said to a machine or typed into a search field; {} stands for a word of the vocabulary.
FORMS = """
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
TEXTS_PER_REQUEST = 2  # given texts for each made one
ENGLISH_WORDS = frozenset("a and are for has in is my of the to what when where with".split())
ENGLISH_SHARE = 0.1  # of the words of texts; German or French ones have less than 0.03


def made_requests(texts: Sequence[PromptedText], tokenizer: Any, prompt: str, seed: int) -> tuple[PromptedText, ...]:
    """Requests for English texts, half as many, read as queries with this prompt; none for other texts.

    Only forms are English: a word is any of the vocabulary in Latin letters.
    """
    vocabulary = vocabulary_words(tokenizer)
    if not vocabulary or not are_english(texts):
        return ()
    made = filled_forms(FORMS, vocabulary, len(texts) // TEXTS_PER_REQUEST, random.Random(seed))
    return tuple(PromptedText(text, prompt, "query") for text in made)


def are_english(texts: Sequence[PromptedText]) -> bool:
    """Whether frequent English words are as frequent as in English."""
    words = [word for item in texts for word in words_of(item.text).split()]
    return sum(word in ENGLISH_WORDS for word in words) >= ENGLISH_SHARE * len(words)


def filled_forms(forms: str, vocabulary: Sequence[str], count: int, generator: random.Random) -> Iterator[str]:
    """Forms with random words in them."""
    known = [form.strip() for form in forms.split("|")]
    for _ in range(count):
        form = generator.choice(known)
        yield form.format(*generator.choices(vocabulary, k=form.count("{}")))


def vocabulary_words(tokenizer: Any) -> list[str]:
    """The entries of a vocabulary that are words in Latin letters, in alphabetical order.

    An entry begins a word if the tokenizer puts a space before it when another entry comes first.
    """
    entries = sorted(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens))
    first = next((entry for entry in entries if entry.isalpha()), None)
    if first is None:
        return []
    joined = (tokenizer.convert_tokens_to_string([first, entry]).partition(" ") for entry in entries)
    return sorted({word for _, space, word in joined if space and len(word) > 1 and word.isalpha() and word.isascii()})

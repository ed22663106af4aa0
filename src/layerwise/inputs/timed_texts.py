"""Texts of some lengths to time a model on."""

from collections.abc import Sequence
from typing import Any

from layerwise.core.quiet import quiet_libraries
from layerwise.inputs.templating import with_template

TIMED_LENGTHS = (3, 20, 270)  # tokens of a text, without those that the tokenizer or a template adds
TIMED_TEXTS = 32  # per call, the usual batch
TIMED_TOKENS = 640  # per call at most, so that long texts in a large model take seconds, not minutes


def room_for_text(tokenizer: Any, template: str, max_length: int) -> int:
    """How many tokens a text may have beside those that the tokenizer and the template add."""
    added: int = getattr(with_template(tokenizer, template), "num_special_tokens_to_add", lambda: 0)()
    return max_length - added


def timed_texts(tokenizer: Any, texts: Sequence[str], room: int) -> dict[int, list[str]]:
    """Texts to time a model on, made of these, by their number of tokens; none is longer than `room` tokens."""
    made = {}
    with quiet_libraries():  # transformers warns about texts that are too long, before they are cut
        for length in sorted({min(length, max(1, room)) for length in TIMED_LENGTHS}):
            count = min(TIMED_TEXTS, max(1, TIMED_TOKENS // length))
            text = text_of_length(tokenizer, texts, length)
            made[token_count(tokenizer, text)] = [text] * count
    return made


def text_of_length(tokenizer: Any, texts: Sequence[str], length: int) -> str:
    """The beginning of these texts, repeated if need be, that has at most so many tokens.

    It may end within a word, and has one character at least, which may be several tokens.
    """
    words = " ".join(texts[: 1 + length // 4]).split() or ["text"]
    text = " ".join((words * 2 * length)[: 2 * length])
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if token_count(tokenizer, text[:middle]) <= length:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def token_count(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])

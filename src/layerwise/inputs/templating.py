"""Applies a template to texts: the one definition for every command, and what an exported tokenizer does itself.

Text before the input is put before it as text. If there is also text after the input, the tokenizer adds both, as
tokens: truncation then cuts the input and keeps the template, and `tokenizer.json` is all that other programs need.
"""

import copy
import json
from typing import Any
from weakref import WeakKeyDictionary

from layerwise.core.errors import InputError
from layerwise.core.templates import INPUT, Template, parse_template

SAMPLE_TEXTS = ("Some words.", "7 of them", "a", "A C")
# The last templated copy of each tokenizer: copying a large vocabulary takes seconds, and evaluation asks per shard.
_COPIES: WeakKeyDictionary[Any, tuple[str, Any]] = WeakKeyDictionary()


def with_template(tokenizer: Any, template: str) -> Any:
    """The tokenizer that adds the template itself; the same tokenizer if the template has no text after the input.

    Args:
        tokenizer: a fast tokenizer of transformers; it is not changed.
        template: the template, or its name.

    Returns:
        A tokenizer whose ids are: start tokens, tokens before, the text, tokens after, end tokens. The start and end
        tokens are those that the given tokenizer adds.

    Raises:
        InputError: the tokenizer is not a fast one, or does not simply add tokens around a text.
    """
    parts = parse_template(template)
    if not parts.after:
        return tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            f"{type(tokenizer).__name__} cannot add text after the input: a template with text after {INPUT} needs a "
            f"fast tokenizer (one with a tokenizer.json); use a template that ends with {INPUT}"
        )
    known, copied = _COPIES.get(tokenizer, ("", None))
    if known != parts.text:
        copied = templated_copy(tokenizer, parts)
        _COPIES[tokenizer] = parts.text, copied
    return copied


def text_before(template: str) -> str:
    """What must be put before each text because the tokenizer does not add it."""
    parts = parse_template(template)
    return "" if parts.after else parts.before


def templated_copy(tokenizer: Any, template: Template) -> Any:
    """A copy of a fast tokenizer with the template in its post-processor."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    before, after = (part_ids(tokenizer, part) for part in (template.before, template.after))
    start, end = added_ids(tokenizer)
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    pieces = [entries(tokenizer, ids) for ids in ((*start, *before), (*after, *end))]
    record = {
        "type": "TemplateProcessing",
        "single": [*pieces[0], text, *pieces[1]],
        "pair": [*pieces[0], text, {"Sequence": {"id": "B", "type_id": 1}}, *pieces[1]],
        "special_tokens": {
            token: {"id": token, "ids": [i], "tokens": [token]}
            for i in (*start, *before, *after, *end)
            for token in [token_of(tokenizer, i)]
        },
    }
    copied = copy.deepcopy(tokenizer)
    # Classes of single architectures build their own post-processor when they are loaded; this one keeps what is saved.
    copied.__class__ = PreTrainedTokenizerFast
    processor = TemplateProcessing()
    processor.__setstate__(json.dumps(record).encode())  # the constructor does not take tokens that contain a colon
    copied.backend_tokenizer.post_processor = processor
    return copied


def entries(tokenizer: Any, ids: tuple[int, ...]) -> list[dict[str, Any]]:
    """One entry per token, called by the token: transformers.js looks an entry up by its name in the vocabulary."""
    return [{"SpecialToken": {"id": token_of(tokenizer, i), "type_id": 0}} for i in ids]


def token_of(tokenizer: Any, token_id: int) -> str:
    return str(tokenizer.backend_tokenizer.id_to_token(token_id))


def part_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """The ids of a part of the template, without special tokens."""
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else ()


def added_ids(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the tokenizer adds before and after a text; raises if it does anything else."""
    found: set[tuple[tuple[int, ...], tuple[int, ...]] | None] = set()
    for text in SAMPLE_TEXTS:
        encoded = tokenizer(text, return_special_tokens_mask=True)
        ids, added, bare = tuple(encoded["input_ids"]), encoded["special_tokens_mask"], part_ids(tokenizer, text)
        if 0 not in added:  # it knows nothing of this text
            continue
        first = added.index(0)
        last = first + len(bare)
        found.add((ids[:first], ids[last:]) if ids[first:last] == bare else None)
    if len(found) != 1 or None in found:
        raise InputError(
            f"{type(tokenizer).__name__} does not simply add tokens around a text, so a template with text after "
            f"{INPUT} cannot be used; use one that ends with {INPUT}"
        )
    (around,) = found
    assert around is not None
    return around

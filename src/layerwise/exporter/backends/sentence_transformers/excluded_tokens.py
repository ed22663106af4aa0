"""Tokens left out of pooling, said in modules that plain sentence-transformers has.

It can leave out tokens by their identity (a weight of 0 for a token that the tokenizer always adds) or a prompt of
known length. It cannot leave out the first token as such, nor those with a large norm: what neither way expresses is
refused here, with what to type instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.inputs.templating import text_before, with_template
from layerwise.inputs.tokenizing import ids_added_by

SAMPLE_TEXTS = ("Some words.", "7 of them", "'quoted' text", " a space before")


@dataclass(frozen=True)
class ExcludedTokens:
    """Token ids that weigh nothing, or the whole prompt."""

    ids: tuple[int, ...] = ()
    prompt: bool = False


def choose_excluded_tokens(tokenizer: Any, recipe: Recipe) -> ExcludedTokens:
    """How the recipe's choice of tokens can be said; raises InputError where it cannot."""
    if recipe.tokens == "all":
        return ExcludedTokens()
    if recipe.tokens not in ("no_first", "no_special"):
        raise InputError(
            f"plain sentence-transformers cannot decide by norms, so tokens {recipe.tokens} cannot be exported; "
            "use no_first (most sinks are first tokens), or all with --transform remove_top:3, which takes them out too"
        )
    opening, prompt = fixed_first_token(tokenizer, recipe.template), text_before(recipe.template)
    if recipe.tokens == "no_special" or opening is not None:
        ids = ids_added_by(tokenizer) if recipe.tokens == "no_special" else [opening]
        if ids and recipe.pooling != "mean":
            raise InputError(f"tokens {recipe.tokens} can be exported with pooling mean only, not {recipe.pooling}")
        return ExcludedTokens(tuple(i for i in ids if i is not None))
    if is_one_token_prompt(tokenizer, prompt):
        return ExcludedTokens(prompt=True)
    raise InputError(
        "this tokenizer puts no token of its own first, and plain sentence-transformers cannot leave out the first "
        "word's; give the place to one token before the text, such as --template $'\\n{text}', which is then left out, "
        "or use --tokens all with --transform remove_top:3"
    )


def fixed_first_token(tokenizer: Any, template: str) -> int | None:
    """The id of the special token that opens every text, if there is one."""
    templated, prompt = with_template(tokenizer, template), text_before(template)
    first = {token_ids(templated, prompt + text)[0] for text in SAMPLE_TEXTS}
    (opening, *others) = first
    return opening if not others and opening in ids_added_by(tokenizer) else None


def is_one_token_prompt(tokenizer: Any, prompt: str) -> bool:
    """True if the prompt is one token, stays apart from what follows, and is not taken for the end of a text."""
    ids = token_ids(tokenizer, prompt) if prompt else []
    apart = all(token_ids(tokenizer, prompt + text) == [*ids, *token_ids(tokenizer, text)] for text in SAMPLE_TEXTS)
    return len(ids) == 1 and apart and ids[0] not in tokenizer.all_special_ids


def token_ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text)["input_ids"])


def weighting_module(tokenizer: Any, ids: Sequence[int]) -> Any:
    """Weight 0 for these tokens, 1 for all others, as the WordWeights module of sentence-transformers."""
    from sentence_transformers.sentence_transformer.modules import WordWeights

    vocabulary = [""] * len(tokenizer)
    for word, at in tokenizer.get_vocab().items():
        vocabulary[at] = word
    silent = {vocabulary[at]: 0.0 for at in ids}
    return WordWeights(vocabulary, silent, unknown_word_weight=1.0)

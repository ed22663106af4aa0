"""Tokens left out of pooling, said in modules that plain sentence-transformers has.

It can leave out tokens by their ids (a weight of 0 for those that the tokenizer adds, wherever they occur) or a prompt
of known length. It cannot leave out the first token as such, nor those with a large norm: what neither way expresses is
refused here, with what to type instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.core.checks import POOLINGS
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.inputs.templating import text_before
from layerwise.inputs.tokenizing import added_ids

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
    special, opening = added_ids(tokenizer)
    if recipe.tokens == "no_special" or opening is not None:
        ids = tuple(sorted(special)) if recipe.tokens == "no_special" or opening is None else (opening,)
        require_pooling(recipe, ("mean",) if ids else POOLINGS)
        return ExcludedTokens(ids)
    if is_one_token_prompt(tokenizer, text_before(recipe.template)):
        require_pooling(recipe, ("mean", "last"))
        return ExcludedTokens(prompt=True)
    raise InputError(
        "this tokenizer puts no token of its own first, and plain sentence-transformers cannot leave out the first "
        "word's; give the place to one token before the text, such as --template $'\\n{text}', which is then left out, "
        "or use --tokens all with --transform remove_top:3"
    )


def require_pooling(recipe: Recipe, exact: Sequence[str]) -> None:
    """Raises for a pooling that would count a token of weight 0, or is not zero for a text in which no token counts."""
    if recipe.pooling not in exact:
        raise InputError(
            f"tokens {recipe.tokens} can be exported with pooling {' or '.join(exact)} only, not {recipe.pooling}"
        )


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

    words = tokenizer.get_vocab()
    vocabulary = [""] * (1 + max(words.values()))
    for word, at in words.items():
        vocabulary[at] = word
    weights = dict.fromkeys((vocabulary[at] for at in ids), 0.0)
    # WordWeights also looks a word up in lower case: <S> would get the weight of <s>.
    others = {word: 1.0 for word in words if word not in weights and word.lower() in weights}
    return WordWeights(vocabulary, weights | others, unknown_word_weight=1.0)

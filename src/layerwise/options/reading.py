"""How layers are read: the options that several verbs share."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from layerwise.core.checks import (
    NORMS,
    POOLINGS,
    ROW_TREATMENTS,
    TOKEN_CHOICES,
    NormWord,
    PoolingWord,
    TokenChoice,
    Words,
    require_count,
    require_length,
    require_words,
)
from layerwise.options.field import Option

LayerChoice = str | int | Sequence[int | str]
GROUP = "what to measure"
HOW_IT_RUNS = "how it runs"


def choice_of(words: Sequence[str], more: str = "") -> Option:
    """An option that takes one word of a closed set, or several with commas."""
    check = partial(require_words, known=words)
    return Option(f"{', '.join(words)}, or several with commas{more}", check, GROUP)


Layers = Annotated[LayerChoice, Option("all, 0,6,12, 25%,50%, or last: the model as shipped", group=GROUP)]
Norms = Annotated[Words, choice_of(NORMS, "; the last layer is read both ways")]
TokenChoices = Annotated[Words, choice_of(TOKEN_CHOICES)]
Rows = Annotated[Words, choice_of(ROW_TREATMENTS, "; a metric that has none of these uses its own")]
Poolings = Annotated[Words | None, choice_of(POOLINGS)]
OwnPoolings = Annotated[Words | None, choice_of(POOLINGS, "; default: as the model itself pools")]
OneNorm = Annotated[NormWord, Option("the hidden state as it is, or after the final norm", group=GROUP)]
OneTokenChoice = Annotated[TokenChoice, Option("which tokens are pooled", group=GROUP)]
OneOwnPooling = Annotated[
    PoolingWord | None, Option("how tokens become one vector; default: as the model itself pools", group=GROUP)
]
MaxLength = Annotated[
    int | None, Option("longest input in tokens; default: 512 or the model's limit", require_length, GROUP, metavar="N")
]
BatchTokens = Annotated[int, Option("tokens in a batch, padding included", require_count, HOW_IT_RUNS, metavar="N")]
Seed = Annotated[int, Option("seed of everything random", partial(require_count, least=None), GROUP, metavar="N")]

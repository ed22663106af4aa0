"""How layers are read: options shared by several verbs."""

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
    """An option that takes one or several choices, separated by commas."""
    check = partial(require_words, known=words)
    return Option(f"{', '.join(words)}; separate several with commas{more}", check, GROUP)


Layers = Annotated[
    LayerChoice, Option("all, layer numbers (0,6,12), depths (25%,50%), or last (the model's output)", group=GROUP)
]
Norms = Annotated[Words, choice_of(NORMS, "; the last layer is read both raw and normed")]
TokenChoices = Annotated[Words, choice_of(TOKEN_CHOICES)]
Rows = Annotated[Words, choice_of(ROW_TREATMENTS, "; a metric that supports none of these uses its default")]
Poolings = Annotated[Words | None, choice_of(POOLINGS)]
OwnPoolings = Annotated[Words | None, choice_of(POOLINGS, "; default: the model's own pooling")]
OneNorm = Annotated[NormWord, Option("raw: the hidden state as is; normed: after the final norm", group=GROUP)]
OneTokenChoice = Annotated[TokenChoice, Option("which tokens are pooled", group=GROUP)]
OneOwnPooling = Annotated[
    PoolingWord | None, Option("how tokens become one vector; default: the model's own pooling", group=GROUP)
]
MaxLength = Annotated[
    int | None,
    Option(
        "maximum input length in tokens; default: the model's own limit (scan, stress, pick: at most 512)",
        require_length,
        GROUP,
        metavar="N",
    ),
]
BatchTokens = Annotated[int, Option("tokens per batch, including padding", require_count, HOW_IT_RUNS, metavar="N")]
Seed = Annotated[int, Option("random seed", partial(require_count, least=None), GROUP, metavar="N")]

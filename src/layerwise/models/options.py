"""How layers are read: options shared by several verbs."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from layerwise.core.checks import (
    NORMS,
    POOLINGS,
    ROW_TREATMENTS,
    TOKEN_CHOICES,
    Choices,
    NormChoice,
    PoolingChoice,
    TokenChoice,
    require_choices,
    require_count,
    require_max_length,
)
from layerwise.core.options import HOW_IT_RUNS, WHAT_TO_MEASURE, Option
from layerwise.core.templates import TEMPLATES, parse_template, split_templates

LayerChoice = str | int | Sequence[int | str]


def choices_option(choices: Sequence[str], suffix: str = "") -> Option:
    """An option that takes one or several choices, separated by commas."""
    check = partial(require_choices, choices=choices)
    return Option(f"{', '.join(choices)}; separate several with commas{suffix}", check, WHAT_TO_MEASURE)


Layers = Annotated[
    LayerChoice,
    Option("all, layer numbers (0,6,12), depths (25%,50%), or last (the model's output)", group=WHAT_TO_MEASURE),
]
Norms = Annotated[Choices, choices_option(NORMS, "; the last layer is read both raw and normed")]
TokenChoices = Annotated[Choices, choices_option(TOKEN_CHOICES)]
Rows = Annotated[Choices, choices_option(ROW_TREATMENTS, "; a metric that supports none of these uses its default")]
Poolings = Annotated[Choices | None, choices_option(POOLINGS)]
PoolingsOrDefault = Annotated[Choices | None, choices_option(POOLINGS, "; default: the model's own pooling")]
SingleNorm = Annotated[
    NormChoice, Option("raw: the hidden state as is; normed: after the final norm", group=WHAT_TO_MEASURE)
]
SingleTokenChoice = Annotated[TokenChoice, Option("which tokens are pooled", group=WHAT_TO_MEASURE)]
SinglePoolingOrDefault = Annotated[
    PoolingChoice | None,
    Option("how tokens become one vector; default: the model's own pooling", group=WHAT_TO_MEASURE),
]
TEMPLATE_HELP = f"text before and after every input, with {{text}} in its place, or one of {', '.join(TEMPLATES)}"
Templates = Annotated[
    Choices | None,
    Option(
        f"{TEMPLATE_HELP}; repeat the flag for several; default: the model's own prompt, if any",
        lambda name, value: split_templates(value),
        WHAT_TO_MEASURE,
        is_repeated=True,
    ),
]
SingleTemplate = Annotated[
    str | None,
    Option(
        f"{TEMPLATE_HELP}; default: the model's own prompt, if any",
        lambda name, value: parse_template(value),
    ),
]
MaxLength = Annotated[
    int | None,
    Option(
        "maximum input length in tokens or frames; default: the model's own limit (scan, stress, pick: at most 512)",
        require_max_length,
        WHAT_TO_MEASURE,
        metavar="N",
    ),
]
BatchTokens = Annotated[int, Option("tokens per batch, including padding", require_count, HOW_IT_RUNS, metavar="N")]
Seed = Annotated[int, Option("random seed", partial(require_count, minimum=None), WHAT_TO_MEASURE, metavar="N")]

"""How to load a model and how to read its layers: the options that several verbs share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

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
from layerwise.core.display import redact_record
from layerwise.core.option_records import options_record
from layerwise.core.options import HOW_IT_RUNS, THE_MODEL, WHAT_TO_MEASURE, Option, require_valid
from layerwise.core.templates import TEMPLATES, parse_template, split_templates

LayerChoice = str | int | Sequence[int | str]


def choices_option(what: str, choices: Sequence[str], suffix: str = "") -> Option:
    """An option that takes one or several choices, separated by commas."""
    check = partial(require_choices, choices=choices)
    return Option(f"{what}: {', '.join(choices)}; separate several with commas{suffix}", check, WHAT_TO_MEASURE)


Layers = Annotated[
    LayerChoice,
    Option("all, layer numbers (0,6,12), depths (25%,50%), or last (the model's output)", group=WHAT_TO_MEASURE),
]
Norms = Annotated[
    Choices,
    choices_option(
        "hidden states as they are, or after the final norm", NORMS, "; the last layer is read both raw and normed"
    ),
]
TokenChoices = Annotated[Choices, choices_option("which tokens count", TOKEN_CHOICES)]
Rows = Annotated[
    Choices,
    choices_option("what is done to rows", ROW_TREATMENTS, "; a metric that supports none of these uses its default"),
]
HOW_POOLED = "how tokens become one vector"
Poolings = Annotated[Choices | None, choices_option(HOW_POOLED, POOLINGS)]
PoolingsOrDefault = Annotated[
    Choices | None,
    choices_option(HOW_POOLED, POOLINGS, "; default: the model's own, or last if a template has text after the input"),
]
SingleNorm = Annotated[
    NormChoice, Option("raw: the hidden state as is; normed: after the final norm", group=WHAT_TO_MEASURE)
]
SingleTokenChoice = Annotated[TokenChoice, Option("which tokens are pooled", group=WHAT_TO_MEASURE)]
SinglePoolingOrDefault = Annotated[
    PoolingChoice | None,
    Option(
        f"{HOW_POOLED}; default: the model's own, or last if a template has text after the input", group=WHAT_TO_MEASURE
    ),
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
BatchTokens = Annotated[
    int,
    Option(
        "tokens per batch, including padding; more is faster and needs more memory",
        require_count,
        HOW_IT_RUNS,
        metavar="N",
    ),
]
Seed = Annotated[
    int, Option("seed of everything random", partial(require_count, minimum=None), WHAT_TO_MEASURE, metavar="N")
]


Dtype = Literal["float32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True)
class ModelSpec:
    """A model and how it is loaded.

    Args:
        name: hub id, or a folder with config.json and model.safetensors.
        revision: branch, tag or commit on the hub.
        dtype: dtype of the weights: float32, bfloat16, float16 or float64.
        device: cpu, cuda, cuda:1, mps, or auto (what the machine has).
        device_map: auto spreads a large model over devices (needs accelerate).
        trust_remote_code: whether to run code shipped with the model.
        adapter: folder of a PEFT adapter to merge into the weights (needs peft).
        part: which stack to read of a model that has several: encoder, decoder, text, vision or audio. By default
            the encoder of a model with encoder and decoder.
        states: folder of hidden states that vLLM or speculators wrote, which scan and embed read instead of running
            the model.
        stream: whether blocks are read from disk one by one, each once for many texts, so that a model larger than
            memory can be scanned.
    """

    name: Annotated[str, Option("hub id or folder with config.json and model.safetensors")]
    revision: Annotated[str | None, Option("branch, tag or commit on the hub", group=THE_MODEL)] = None
    dtype: Annotated[Dtype, Option("number type of the weights", group=THE_MODEL)] = "float32"
    device: Annotated[str, Option("cpu, cuda, cuda:1, mps, or auto: the best available", group=THE_MODEL)] = "auto"
    device_map: Annotated[
        str | None, Option("auto: spread a large model over devices (needs accelerate)", group=THE_MODEL)
    ] = None
    trust_remote_code: Annotated[bool, Option("run code that comes with the model", group=THE_MODEL)] = False
    adapter: Annotated[str | None, Option("folder of a PEFT adapter to merge in (needs peft)", group=THE_MODEL)] = None
    part: Annotated[
        str | None,
        Option("which stack to read if a model has several: encoder, decoder, text, vision or audio", group=THE_MODEL),
    ] = None
    states: Annotated[
        str | None,
        Option(
            "scan, embed: folder of hidden states that vLLM wrote, read instead of running the model (docs/scale.md)",
            group=THE_MODEL,
            metavar="DIR",
        ),
    ] = None
    stream: Annotated[
        bool,
        Option(
            "scan, embed, eval, pick: read block after block from disk, for models larger than memory", group=THE_MODEL
        ),
    ] = False

    def __post_init__(self) -> None:
        require_valid(self)


class ModelObject(Protocol):
    """A model in memory: a transformers model, a SentenceTransformer, or any torch module with a config."""

    def parameters(self, recurse: bool = True) -> Iterator[Any]:
        """Its weights."""


# What a function takes as a model: a hub id or folder, a spec, a model object, or (module, tokenizer or processor).
ModelLike = str | Path | ModelSpec | ModelObject | tuple[ModelObject, object]
Model = Annotated[
    ModelLike,
    Option(
        "a hub id, a folder, a ModelSpec (which also sets dtype, device and revision), a transformers model, a "
        "SentenceTransformer, or a pair (module, tokenizer or processor)",
        library_only=True,
        is_recorded=False,
    ),
]


def call_record(verb: str, options: Any, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record of a call: the verb, its options, and how the model and texts were opened.

    Objects that were passed directly become None (model, data) or are marked as in memory (options).
    """
    spec = ModelSpec(str(options.model)) if isinstance(options.model, str | Path) else options.model
    model_record = options_record(spec) if isinstance(spec, ModelSpec) else None
    data_record: dict[str, Any] = {} if data is None else {"data": redact_record(data) or None}
    return {"verb": verb, "model": model_record, **data_record, **options_record(options)}

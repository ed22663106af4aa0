"""scan: what to measure, and how to run it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_count, require_fraction, require_state
from layerwise.core.options import HOW_IT_RUNS, WHAT_TO_MEASURE, Option, flag_names, require_valid
from layerwise.engines.options import AllowMissing, Engine, Progress, Threads
from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH
from layerwise.models.spec import BatchTokens, Layers, MaxLength, Norms, Poolings, Rows, Seed, TokenChoices

EntropyChoice = Literal["auto", "exact", "products"]
Entropy = Annotated[
    EntropyChoice,
    Option(
        "prompt entropy by exact eigenvalues, by matrix products (within 0.001 nats), or auto: the faster one here",
        group=HOW_IT_RUNS,
    ),
]
KeepPrompts = Literal["auto", "all", "none"]
ShardSize = Annotated[
    int,
    Option(
        "texts in a shard; an interrupted run resumes after its last whole shard",
        require_count,
        HOW_IT_RUNS,
        metavar="N",
    ),
]
State = Annotated[
    str,
    Option(
        "how sums over all texts are kept: exact, float32, sketch:512, or auto: the most exact within 8 GB",
        lambda name, word: require_state(word),
        HOW_IT_RUNS,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ScanOptions:
    """The options of `scan`."""

    out: Annotated[
        str | Path | None,
        Option("folder or url (s3://...) to save the run in; the same command resumes it there", metavar="RUN"),
    ] = None
    metrics: Annotated[
        str | Sequence[Any],
        Option("fast (those that need one pass per text), all, names, or list: what there is", group=WHAT_TO_MEASURE),
    ] = "fast"
    rows: Rows = "raw"
    layers: Layers = "all"
    inside: Annotated[
        bool,
        Option("also measure the points inside each block, such as the output of attention", group=WHAT_TO_MEASURE),
    ] = False
    norm: Norms = "raw"
    tokens: TokenChoices = "all"
    pooling: Poolings = "mean"
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    shard_size: ShardSize = 1024
    seed: Seed = 0
    view_strength: Annotated[
        float,
        Option("fraction of words and letters that views change", require_fraction, WHAT_TO_MEASURE, metavar="SHARE"),
    ] = DEFAULT_STRENGTH
    state: State = "auto"
    entropy: Entropy = "auto"
    keep_prompts: Annotated[
        KeepPrompts,
        Option("which texts' own numbers to save; auto: those of the first 100,000", group=HOW_IT_RUNS),
    ] = "auto"
    engine: Engine = "local"
    threads: Threads = None
    allow_missing: AllowMissing = 0
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)


NOT_MEASURED = ("out", "keep_prompts", "engine", "threads", "allow_missing", "progress")
# What is measured: the settings in a campaign file, and the options of `plan`.
SETTINGS = tuple(name for name in flag_names(ScanOptions) if name not in NOT_MEASURED)

OPTIONS = ScanOptions

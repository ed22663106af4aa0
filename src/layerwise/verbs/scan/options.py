"""scan: what to measure, and how to run it; plan: what that would take."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import require_count, require_fraction, require_state
from layerwise.core.options import HOW_IT_RUNS, WHAT_TO_MEASURE, Option, flag_names, require_valid
from layerwise.engines.options import AllowMissing, Progress, ScanEngine, Threads
from layerwise.inputs.options import Data
from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH
from layerwise.models.spec import BatchTokens, Layers, MaxLength, Model, Norms, Poolings, Rows, Seed, TokenChoices

if TYPE_CHECKING:
    from layerwise.metrics.base import Metric
else:
    Metric = Any  # importing it loads torch

EntropyChoice = Literal["auto", "exact", "products"]
KeepPrompts = Literal["auto", "all", "none"]


@dataclass(frozen=True)
class MeasureOptions:
    """What `scan` and `stress` measure."""

    model: Model
    data: Data = "demo"
    _: KW_ONLY
    metrics: Annotated[
        str | Sequence[str | Metric],
        Option("fast (those that need one pass per text), all, names, or list: what there is", group=WHAT_TO_MEASURE),
    ] = "fast"
    rows: Rows = "raw"
    layers: Layers = "all"
    norm: Norms = "raw"
    tokens: TokenChoices = "all"
    pooling: Poolings = "mean"
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    shard_size: Annotated[
        int,
        Option(
            "texts in a shard; an interrupted run resumes after its last whole shard",
            require_count,
            HOW_IT_RUNS,
            metavar="N",
        ),
    ] = 1024
    seed: Seed = 0
    state: Annotated[
        str,
        Option(
            "how sums over all texts are kept: exact, float32, sketch:512, or auto: the most exact within 8 GB",
            lambda name, word: require_state(word),
            HOW_IT_RUNS,
        ),
    ] = "auto"
    entropy: Annotated[
        EntropyChoice,
        Option(
            "prompt entropy by exact eigenvalues, by matrix products (within 0.001 nats), or auto: the faster one on "
            "the model's device",
            group=HOW_IT_RUNS,
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        require_valid(self)


@dataclass(frozen=True, kw_only=True)
class ScanSettings(MeasureOptions):
    """What `scan` measures: the settings in a campaign file, and what a forecast depends on."""

    inside: Annotated[
        bool,
        Option(
            "also measure the points inside each block, such as the output of attention (docs/inside.md)",
            group=WHAT_TO_MEASURE,
        ),
    ] = False
    view_strength: Annotated[
        float,
        Option(
            "fraction of words and letters that views change; for audio and images see docs/audio.md and "
            "docs/images.md",
            require_fraction,
            WHAT_TO_MEASURE,
            metavar="SHARE",
        ),
    ] = DEFAULT_STRENGTH


SETTINGS = flag_names(ScanSettings)


@dataclass(frozen=True, kw_only=True)
class PlanOptions(ScanSettings):
    """The options of `plan`."""

    timed: Annotated[bool, Option("load the model, time a few batches, and predict the seconds as well")] = False


@dataclass(frozen=True, kw_only=True)
class ScanOptions(ScanSettings):
    """The options of `scan`."""

    out: Annotated[
        str | Path | None,
        Option(
            "folder or url (s3://...) to save the run in; the same call resumes it there, and reads a finished one "
            "without loading the model",
            metavar="RUN",
        ),
    ] = None
    keep_prompts: Annotated[
        KeepPrompts,
        Option("which texts' own numbers to save; auto: those of the first 100,000", group=HOW_IT_RUNS),
    ] = "auto"
    engine: ScanEngine = "local"
    threads: Threads = None
    allow_missing: AllowMissing = 0
    progress: Progress = False


OPTIONS = ScanOptions

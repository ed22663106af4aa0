"""probe: train probes on every layer."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from layerwise.core.checks import Choices, PoolingChoice, Precision, require_choices, require_count
from layerwise.core.errors import InputError
from layerwise.core.options import HOW_IT_RUNS, WHAT_TO_MEASURE, Option, require_valid
from layerwise.engines.options import Progress, Threads
from layerwise.inputs.options import require_label
from layerwise.models.spec import BatchTokens, Layers, MaxLength, Model, Seed, SingleTokenChoice

if TYPE_CHECKING:
    from layerwise.inputs.source import Source
else:
    Source = Any  # importing it loads numpy

ProbeName = Literal["linear", "knn", "attention", "weighted_sum"]
PROBES: tuple[str, ...] = get_args(ProbeName)
StoredFeatures = Literal["keep", "evict"]


def require_share(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise InputError(f"{name} must be between 0 and 1, not {value!r}")


@dataclass(frozen=True)
class ProbeOptions:
    """The options of `probe`."""

    model: Model
    data: Annotated[
        str | Path | Source,
        Option(
            "examples to train on: a .jsonl, .csv or .parquet file with a column text, `labelled(...)` with other "
            "options, or a Source with labels, of any modality",
            library_only=True,
            is_recorded=False,
        ),
    ]
    test: Annotated[
        str | Path | Source | None,
        Option(
            "data to test on; default: a share of --data, chosen by hashed content. What is also in --data is left out",
            is_text_source=True,
        ),
    ] = None
    _: KW_ONLY
    label: Annotated[Choices, Option("column with the class of each example; separate several with commas",
                                     require_label)]  # fmt: skip
    probes: Annotated[
        Choices,
        Option(
            "linear: logistic regression; knn: nearest neighbours; attention: a learned query over all positions; "
            "weighted_sum: one classifier on a weighted sum of all layers; separate several with commas",
            partial(require_choices, choices=PROBES),
        ),
    ] = "linear,knn,attention,weighted_sum"
    out: Annotated[
        str | Path | None,
        Option("run folder; the same call resumes it, and one with other labels or probes adds to it"),
    ] = None
    layers: Layers = "all"
    tokens: SingleTokenChoice = "all"
    pooling: Annotated[
        PoolingChoice, Option("how tokens become one vector, for linear and knn", group=WHAT_TO_MEASURE)
    ] = "mean"
    max_length: MaxLength = None
    test_share: Annotated[
        float, Option("share of --data to test on, without --test", require_share, WHAT_TO_MEASURE, metavar="SHARE")
    ] = 0.2
    epochs: Annotated[
        int,
        Option("most epochs of the attention probe; fewer if it stops improving", require_count, WHAT_TO_MEASURE, "N"),
    ] = 40
    seed: Seed = 0
    batch_tokens: BatchTokens = 4096
    precision: Annotated[Precision, Option("dtype of stored positions", group=HOW_IT_RUNS)] = "float16"
    features: Annotated[
        StoredFeatures, Option("keep what was read of each layer in --out, or delete it at the end (evict)",
                               group=HOW_IT_RUNS)
    ] = "keep"  # fmt: skip
    threads: Threads = None
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)


OPTIONS = ProbeOptions

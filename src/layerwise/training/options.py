"""The callbacks of training: what is measured of the layers, how often, and where it is kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import require_count, require_fraction
from layerwise.core.errors import InputError
from layerwise.core.options import Option, require_valid
from layerwise.models.spec import (
    BatchTokens,
    LayerChoice,
    Layers,
    MaxLength,
    ModelObject,
    Norms,
    Poolings,
    Rows,
    TokenChoices,
)

if TYPE_CHECKING:
    from transformers import Trainer

    from layerwise.inputs.source import DataLike
    from layerwise.metrics.base import Metric
else:
    DataLike = Metric = Trainer = Any  # importing them takes long

Keep = Literal["run", "table"]


@dataclass(frozen=True)
class Alert:
    """A rule that warns when a metric of a layer becomes too small, and may stop the training.

    It fires once per layer, and again after the value has recovered. NaN or infinity in a layer always warns; it stops
    the training if one of the alerts would.

    Args:
        metric: name of a metric that the callback measures.
        below: fires when the value of a layer is below this.
        fall: fires when the value has fallen by this share of the largest value so far: 0.5 for half of it.
        layers: the layers to look at: `all`, numbers, depths such as "50%", or `last`.
        stop: stop the training when it fires.

    Raises:
        InputError: neither `below` nor `fall` is given, or `fall` is not between 0 and 1.

    Example:
        >>> layerwise.training.Alert("effective_rank", below=5.0, layers="last", stop=True).below
        5.0
    """

    metric: str = "effective_rank"
    below: float | None = None
    fall: float | None = None
    layers: LayerChoice = "all"
    stop: bool = False

    def __post_init__(self) -> None:
        if self.below is None and self.fall is None:
            raise InputError("an alert needs below=... or fall=...: below=5.0, or fall=0.5 for half of the largest")
        if self.fall is not None and not 0 < self.fall < 1:
            raise InputError(f"fall={self.fall} must be between 0 and 1: 0.5 for half of the largest value")


def require_steps(name: str, every: object) -> None:
    steps = every if isinstance(every, Sequence) and not isinstance(every, str) else [every]
    for step in steps:
        require_count(name, step, minimum=1 if steps is not every else 0)


def require_alerts(name: str, alerts: object) -> None:
    if not isinstance(alerts, tuple | list) or not all(isinstance(alert, Alert) for alert in alerts):
        raise InputError(f"{name} must be a list of layerwise.training.Alert, not {alerts!r}")


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """What all callbacks of training take."""

    every: Annotated[
        int | Sequence[int],
        Option("steps between scans, or a list of the steps to scan at, such as [1, 2, 4, 8]", require_steps),
    ] = 100
    out: Annotated[
        str | Path | None, Option("folder or url that gets one run per scan, for compare, report and plot")
    ] = None
    keep: Annotated[
        Keep,
        Option(
            "run: all of a run, which grows with the number of texts and the square of the width; table: a few "
            "kilobytes, but compare has no paired intervals"
        ),
    ] = "run"
    metrics: Annotated[str | Sequence[str | Metric], Option("fast, all, names with commas, or Metric objects")] = (
        "prompt_entropy,effective_rank,curvature"
    )
    rows: Rows = "raw"
    layers: Layers = "all"
    norm: Norms = "raw"
    tokens: TokenChoices = "all"
    pooling: Poolings = "mean"
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    shard_size: Annotated[
        int, Option("texts that one process of a distributed training computes at a time", require_count)
    ] = 64
    alerts: Annotated[
        Sequence[Alert], Option('rules that warn, such as `Alert("effective_rank", below=5.0)`', require_alerts)
    ] = ()
    max_share: Annotated[
        float | None, Option("skip a scan if scans took more than this share of the time so far", require_fraction)
    ] = None
    progress: Annotated[bool, Option("do not say at the end what the scans cost", is_recorded=False)] = True

    def __post_init__(self) -> None:
        require_valid(self)


WatchedTexts = Annotated[
    DataLike | Sequence[Mapping[str, Any]],
    Option("what `scan` takes as data, or a list of tokenized batches with `input_ids` and `attention_mask`"),
]


@dataclass(frozen=True)
class CallbackOptions(WatchOptions):
    """The options of LayerwiseCallback."""

    trainer: Annotated[Trainer, Option("the Trainer of transformers, or a SentenceTransformerTrainer")]
    texts: WatchedTexts
    _: KW_ONLY
    tokenizer: Annotated[
        object, Option("the tokenizer; default: the trainer's own, or the one that the model came with")
    ] = None


@dataclass(frozen=True)
class LightningOptions(WatchOptions):
    """The options of LightningCallback."""

    model: Annotated[
        Callable[[Any], ModelObject | tuple[ModelObject, object]],
        Option(
            "a function of your LightningModule that returns what to measure: a transformers model, a "
            "SentenceTransformer, or a pair (model, tokenizer)"
        ),
    ]
    texts: WatchedTexts

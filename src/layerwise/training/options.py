"""The callbacks of training: what is measured of the layers, how often, and where it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_count, require_fraction
from layerwise.core.errors import InputError
from layerwise.core.options import HOW_IT_RUNS, WHAT_TO_MEASURE, Option, require_valid
from layerwise.models.spec import (
    BatchTokens,
    LayerChoice,
    Layers,
    MaxLength,
    Norms,
    Poolings,
    Rows,
    TokenChoices,
)

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
    """The options of the callbacks of training."""

    every: Annotated[int | Sequence[int], Option("steps between scans, or the steps", require_steps, HOW_IT_RUNS)] = 100
    out: Annotated[str | Path | None, Option("folder or url for one run per scan")] = None
    keep: Annotated[Keep, Option("run: all of each run; table: only its table", group=HOW_IT_RUNS)] = "run"
    metrics: Annotated[str | Sequence[Any], Option("as in scan", group=WHAT_TO_MEASURE)] = (
        "prompt_entropy,effective_rank,curvature"
    )
    rows: Rows = "raw"
    layers: Layers = "all"
    norm: Norms = "raw"
    tokens: TokenChoices = "all"
    pooling: Poolings = "mean"
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    shard_size: Annotated[int, Option("texts that one process computes at a time", require_count, HOW_IT_RUNS)] = 64
    alerts: Annotated[Sequence[Alert], Option("rules that warn", require_alerts, WHAT_TO_MEASURE)] = ()
    max_share: Annotated[
        float | None, Option("largest share of the training time that scans may take", require_fraction, HOW_IT_RUNS)
    ] = None
    progress: Annotated[bool, Option("say what the scans cost at the end", is_recorded=False)] = True

    def __post_init__(self) -> None:
        require_valid(self)

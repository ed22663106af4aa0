"""Metric: a number for each layer, told as data. Estimate: such a number with how it came about."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from layerwise.core.errors import InputError
from layerwise.metrics.intervals import Spread
from layerwise.metrics.readings import Reading
from layerwise.ops.rows import RowTreatment

Perspective = Literal["information", "geometry", "invariance", "scale"]


@dataclass(frozen=True)
class Estimate:
    """A score, the interval it lies in, how many examples made it and how many had no defined value."""

    value: float
    n: int
    skipped: int = 0
    ci_low: float = math.nan
    ci_high: float = math.nan
    note: str = ""  # how exact it is, where what was kept is not


@dataclass(frozen=True)
class Metric:
    """What a number of a layer means, what is kept of the layer for it, and how it is made of that.

    `rows` lists the row treatments it is defined for, the default first; `reading` says what to keep for one
    of them, and `score` makes the estimate of what was kept. `larger_means` is what the number says, not what
    is good: which way a metric is used to choose a layer is the business of a rule.
    """

    name: str
    perspective: Perspective
    larger_means: str
    reading: Callable[[RowTreatment], Reading]
    score: Callable[[Any, RowTreatment], Estimate]
    cite: str
    unit: str = ""
    spread: Spread | None = None  # for scores whose interval does not come from what `reading` keeps
    rows: tuple[RowTreatment, ...] = ("raw",)

    @property
    def caption(self) -> dict[str, str]:
        """What a page or figure says about the metric: unit, what a larger value means, and the perspective."""
        return {"unit": self.unit, "larger_means": self.larger_means, "perspective": self.perspective}

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InputError(f"metric name {self.name!r} must be a plain word, such as 'my_metric'")
        if not self.rows:
            raise InputError(f"metric {self.name!r} names no row treatment; pass rows=('raw',)")

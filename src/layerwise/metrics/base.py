"""Metric: the definition of a per-layer number. Estimate: its value, interval and sample size."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from layerwise.core.errors import InputError
from layerwise.metrics.intervals import IntervalSource
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.readings import Reading

Perspective = Literal["information", "geometry", "invariance", "scale"]


@dataclass(frozen=True)
class Estimate:
    """A metric's value for one layer, with its interval and the number of examples behind it.

    Args:
        value: the value; nan where it is undefined.
        n: examples behind the value.
        skipped: examples for which the metric is undefined, such as prompts of one token.
        ci_low: lower end of the 95 % interval; nan where there is none.
        ci_high: upper end of the 95 % interval.
        note: how exact the value is, where memory did not allow exact sums.
    """

    value: float
    n: int
    skipped: int = 0
    ci_low: float = math.nan
    ci_high: float = math.nan
    note: str = ""  # accuracy, if the accumulated sums are not exact


@dataclass(frozen=True)
class Metric:
    """A metric: which numbers are read from each layer, and how they become one value per layer.

    Pass metrics of your own to `scan(metrics=[...])`. `reading` and `score` are usually built from
    `mean_over_prompts` and `mean_score` (a function of each prompt's tokens) or `pooled_rows` and `spectrum_score` (a
    function of the eigenvalues of all pooled vectors).

    Args:
        name: name of the metric in tables, a plain identifier.
        perspective: information, geometry, invariance or scale; the report groups metrics by it.
        larger_means: what a larger value says about the layer, in a few words. It is not a judgement of quality.
        reading: a function of the row treatment that returns what to read from each batch (a `Reading`).
        score: a function of what was accumulated and of the row treatment that returns an `Estimate`.
        cite: where the metric comes from.
        unit: unit of the value, such as "nats"; empty for none.
        interval_source: for metrics whose interval needs a reading of its own.
        rows: the row treatments for which the metric is defined, the default first.
        products_reading: like `reading`, but by matrix products alone, for `scan(entropy="products")`.

    Raises:
        InputError: the name is not an identifier, or `rows` is empty.

    Example:
        >>> def largest_norm(tokens, mask):  # (B, T, D), (B, T) -> (B,)
        ...     return (tokens.norm(dim=-1) * mask).amax(dim=-1)
        >>> metric = layerwise.Metric(
        ...     name="largest_norm",
        ...     perspective="scale",
        ...     larger_means="a longer longest token",
        ...     reading=layerwise.mean_over_prompts("largest_norm", largest_norm),
        ...     score=layerwise.mean_score(),
        ...     cite="this page",
        ... )
        >>> table = layerwise.scan(model, texts, metrics=[metric])
        >>> all(score.value > 0 for score in table)
        True
    """

    name: str
    perspective: Perspective
    larger_means: str
    reading: Callable[[RowTreatment], Reading]
    score: Callable[[Any, RowTreatment], Estimate]
    cite: str
    unit: str = ""
    interval_source: IntervalSource | None = None  # for scores whose interval needs another reading
    rows: tuple[RowTreatment, ...] = ("raw",)
    products_reading: Callable[[RowTreatment], Reading] | None = None

    @property
    def caption(self) -> dict[str, str]:
        """What a page or figure says about the metric: unit, what a larger value means, and the perspective."""
        return {"unit": self.unit, "larger_means": self.larger_means, "perspective": self.perspective}

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise InputError(f"metric name {self.name!r} must be a valid Python identifier, such as 'my_metric'")
        if not self.rows:
            raise InputError(f"metric {self.name!r} has no row treatment; pass rows=('raw',)")

"""Readings: what is kept of a layer while data streams by. Equal readings are kept once and shared by metrics."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from layerwise.accumulators.base import Accumulator
from layerwise.accumulators.class_scatter import ClassScatter
from layerwise.accumulators.row_sample import RowSample
from layerwise.accumulators.running_mean import RunningMean
from layerwise.accumulators.second_moment import SecondMoment
from layerwise.ops.rows import RowTreatment, treat_rows, unit_rows

SAMPLE_ROWS = 2048
SAMPLE_PAIRS = 2048
LIDAR_VIEWS = 16


@dataclass(frozen=True)
class LayerBatch:
    """One layer's view of B examples. View 0 is the original; views 1, 2, ... are its perturbed copies.

    keys (B,) hashed ids; tokens (B, T, D) of the originals and mask (B, T) of those that count; pooled
    (B, V, D), one row a view.
    """

    keys: Tensor
    tokens: Tensor
    mask: Tensor
    pooled: Tensor


@dataclass(frozen=True)
class Reading:
    """How one kept thing starts, given the width D, and how a batch feeds it. Readings of equal name are one.

    `of` says whether it looks at the tokens of each prompt or at one pooled row a view; `views` counts the
    perturbed copies it needs beside the original. A reading of numbers a prompt names them in `columns`, and
    its `feed` returns them, so that they can also be kept prompt by prompt.
    """

    name: str
    of: Literal["tokens", "pooled"]
    start: Callable[[int], Accumulator] = field(compare=False)
    feed: Callable[[Any, LayerBatch], Tensor | None] = field(compare=False)
    views: int = 0
    columns: tuple[str, ...] = ()


def prompt_numbers(name: str, function: Callable[[Tensor, Tensor], Tensor], columns: tuple[str, ...]) -> Reading:
    """Means over prompts of function(tokens (B, T, D), mask (B, T)) -> (B, columns)."""

    def feed(kept: RunningMean, batch: LayerBatch) -> Tensor:
        values = function(batch.tokens, batch.mask).reshape(len(batch.keys), len(columns))
        kept.update(values)
        return values

    return Reading(name, "tokens", lambda width: RunningMean(len(columns)), feed, columns=columns)


def mean_over_prompts(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[RowTreatment], Reading]:
    """The mean over prompts of function(tokens (B, T, D), mask (B, T)) -> (B,), on rows treated as asked."""

    def reading(rows: RowTreatment) -> Reading:
        def treated(tokens: Tensor, mask: Tensor) -> Tensor:
            return function(tokens if rows == "raw" else treat_rows(tokens, rows, mask), mask)

        return prompt_numbers(f"{name}/{rows}", treated, (name,))

    return reading


def pooled_rows(rows: RowTreatment) -> Reading:
    """The second moment of the originals' rows; for centred unit rows, which need the final mean, a sample."""
    if rows == "centered_unit":
        return row_sample(rows)
    if rows == "unit":
        return Reading(
            "pooled_unit_rows", "pooled", SecondMoment, lambda kept, batch: kept.update(unit_rows(batch.pooled[:, 0]))
        )
    # Raw and centred rows share one state: centring is exact at the end.
    return Reading("pooled_rows", "pooled", SecondMoment, lambda kept, batch: kept.update(batch.pooled[:, 0]))


def row_sample(rows: RowTreatment) -> Reading:
    """The originals' rows with the smallest hashed ids, as they are: `rows` is applied when they are read."""
    return Reading(
        "row_sample",
        "pooled",
        lambda width: RowSample(width, views=1, size=SAMPLE_ROWS),
        lambda kept, batch: kept.update(batch.keys, batch.pooled[:, :1]),
    )


def mean_unit_row(rows: RowTreatment) -> Reading:
    """The mean of the originals' rows, each scaled to unit length; zero rows are counted as skipped."""

    def feed(kept: RunningMean, batch: LayerBatch) -> None:
        unit = unit_rows(batch.pooled[:, 0])
        kept.update(unit.masked_fill((unit == 0).all(dim=-1, keepdim=True), float("nan")))

    return Reading("mean_unit_row", "pooled", RunningMean, feed)


def view_pairs(rows: RowTreatment) -> Reading:
    """Rows of views 1 and 2 of the examples with the smallest hashed ids."""
    return Reading(
        "view_pairs",
        "pooled",
        lambda width: RowSample(width, views=2, size=SAMPLE_PAIRS),
        lambda kept, batch: kept.update(batch.keys, batch.pooled[:, 1:3]),
        views=2,
    )


def view_scatter(rows: RowTreatment) -> Reading:
    """Scatter of the perturbed views around their prompt's mean, and of the prompts' means."""
    return Reading(
        "view_scatter",
        "pooled",
        lambda width: ClassScatter(width, views=LIDAR_VIEWS),
        lambda kept, batch: kept.update(batch.pooled[:, 1 : 1 + LIDAR_VIEWS]),
        views=LIDAR_VIEWS,
    )

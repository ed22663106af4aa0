"""Readings: what is kept of a layer while data streams by. Shared readings are kept once for all metrics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from layerwise.accumulators.base import Accumulator
from layerwise.accumulators.class_scatter import ClassScatter
from layerwise.accumulators.frequent_directions import FrequentDirections
from layerwise.accumulators.row_sample import RowSample
from layerwise.accumulators.running_mean import RunningMean
from layerwise.accumulators.second_moment import SecondMoment
from layerwise.metrics.code_hash import code_hash
from layerwise.ops.precision import double
from layerwise.ops.rows import RowTreatment, treat_rows, unit_rows
from layerwise.ops.spectrum import eigenvalues, spectrum

SAMPLE_ROWS = 2048
SAMPLE_PAIRS = 2048
SAMPLE_VIEWED = 256
LIDAR_VIEWS = 16

# How many numbers of a layer a metric works on at once: a megabyte fits a CPU's cache, a GPU wants more to do.
PIECE_ELEMENTS = {"cpu": 2**18}


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

    def pieces(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens and mask a few prompts at a time: what a metric needs in passing stays small, and in the cache."""
        elements = PIECE_ELEMENTS.get(self.tokens.device.type, 2**24)
        step = max(1, elements // max(1, self.tokens[0].numel())) if len(self.tokens) else 1
        return zip(torch.split(self.tokens, step), torch.split(self.mask, step), strict=True)


@dataclass(frozen=True)
class Reading:
    """What is read of a batch, and the accumulator that keeps it.

    `read` reduces a batch to the few numbers that the accumulator's `update` takes; `start` makes that
    accumulator for width D. Reading and keeping are two steps, so that a batch that fails half way through
    the layers leaves no trace. `of` says whether it looks at the tokens of each prompt or at one pooled row a
    view; `views` counts the perturbed copies it needs beside the original. A reading of numbers a prompt
    names them in `columns`, so that they can also be kept prompt by prompt. `finish` turns what was kept into
    what scores are made of, once for all metrics that share it.

    A reading is known by what it computes: its name, its metric's name and a hash of its code, so two readings of one
    name are kept apart, and one whose code was changed does not go on with what the old one kept. Where `shared` is
    true, the name alone says what is computed, and all metrics with a reading of that name share what is kept:
    layerwise's own readings do.
    """

    name: str
    of: Literal["tokens", "pooled"]
    start: Callable[[int], Accumulator] = field(compare=False)
    read: Callable[[LayerBatch], tuple[Tensor, ...]] = field(compare=False)
    views: int = 0
    columns: tuple[str, ...] = ()
    finish: Callable[[Any, RowTreatment], Any] = field(default=lambda kept, rows: kept, compare=False)
    shared: bool = False

    def key(self, metric: str) -> str:
        """The name under which it is kept for a metric."""
        return self.name if self.shared else f"{self.name}@{metric}#{code_hash(self.start, self.read)}"


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of the pooled rows of all prompts, the numbers of rows behind them and skipped, and how exact."""

    values: Tensor
    n: int
    skipped: int
    note: str = ""


def prompt_numbers(
    name: str, function: Callable[[Tensor, Tensor], Tensor], columns: tuple[str, ...], *, shared: bool = False
) -> Reading:
    """Means over prompts of function(tokens (B, T, D), mask (B, T)) -> (B, columns)."""

    def read(batch: LayerBatch) -> tuple[Tensor]:
        pieces = [function(tokens, mask).reshape(len(tokens), len(columns)) for tokens, mask in batch.pieces()]
        return (torch.cat(pieces),)

    return Reading(name, "tokens", lambda width: RunningMean(len(columns)), read, columns=columns, shared=shared)


def mean_over_prompts(
    name: str, function: Callable[[Tensor, Tensor], Tensor], *, shared: bool = False
) -> Callable[[RowTreatment], Reading]:
    """The mean over prompts of function(tokens (B, T, D), mask (B, T)) -> (B,), on rows treated as asked."""

    def reading(rows: RowTreatment) -> Reading:
        def treated(tokens: Tensor, mask: Tensor) -> Tensor:
            return function(tokens if rows == "raw" else treat_rows(tokens, rows, mask), mask)

        return prompt_numbers(f"{name}/{rows}", treated, (name,), shared=shared)

    return reading


def pooled_rows(rows: RowTreatment) -> Reading:
    """The second moment of the originals' rows; for centred unit rows, which need the final mean, a sample."""
    if rows == "centered_unit":
        return replace(row_sample(rows), finish=spectrum_of_sample)

    def read(batch: LayerBatch) -> tuple[Tensor]:
        return (unit_rows(batch.pooled[:, 0]) if rows == "unit" else batch.pooled[:, 0],)

    # Raw and centred rows share one state: centring is exact at the end.
    name = "pooled_unit_rows" if rows == "unit" else "pooled_rows"
    return Reading(name, "pooled", SecondMoment, read, finish=spectrum_of_moment, shared=True)


def spectrum_of_moment(kept: SecondMoment | FrequentDirections, rows: RowTreatment) -> Spectrum:
    """From all rows, on the smaller side: N x N while they are kept as rows, else D x D."""
    if (seen := kept.rows()) is not None:
        values = spectrum(seen, "centered" if rows == "centered" else "raw") if len(seen) else seen.new_zeros(1)
        return Spectrum(values, len(seen), kept.skipped, kept.note(float((seen**2).sum()), float(values.sum())))
    count, mean, scatter = kept.summed()
    raw = scatter + count * torch.outer(mean, mean)
    gram = scatter if rows == "centered" else raw
    told = kept.note(float(raw.trace()), float(gram.trace()))
    return Spectrum(eigenvalues(gram, max(count, kept.width)), count, kept.skipped, told)


def spectrum_of_sample(kept: RowSample, rows: RowTreatment) -> Spectrum:
    """From the sampled rows."""
    seen = double(kept.kept[:, 0])
    return Spectrum(spectrum(seen, rows) if len(seen) else seen.new_zeros(1), len(seen), kept.skipped)


def row_sample(rows: RowTreatment) -> Reading:
    """The originals' rows with the smallest hashed ids, as they are: `rows` is applied when they are read."""
    return Reading(
        "row_sample",
        "pooled",
        lambda width: RowSample(width, views=1, size=SAMPLE_ROWS),
        lambda batch: (batch.keys, batch.pooled[:, :1]),
        shared=True,
    )


def mean_unit_row(rows: RowTreatment) -> Reading:
    """The mean of the originals' rows, each scaled to unit length; zero rows are counted as skipped."""

    def read(batch: LayerBatch) -> tuple[Tensor]:
        unit = unit_rows(batch.pooled[:, 0])
        return (unit.masked_fill((unit == 0).all(dim=-1, keepdim=True), float("nan")),)

    return Reading("mean_unit_row", "pooled", RunningMean, read, shared=True)


def view_pairs(rows: RowTreatment) -> Reading:
    """Rows of views 1 and 2 of the examples with the smallest hashed ids."""
    return Reading(
        "view_pairs",
        "pooled",
        lambda width: RowSample(width, views=2, size=SAMPLE_PAIRS),
        lambda batch: (batch.keys, batch.pooled[:, 1:3]),
        views=2,
        shared=True,
    )


def view_sample(rows: RowTreatment) -> Reading:
    """All perturbed views of a few examples, those with the smallest hashed ids: for the interval of LiDAR."""
    return Reading(
        "view_sample",
        "pooled",
        lambda width: RowSample(width, views=LIDAR_VIEWS, size=SAMPLE_VIEWED),
        lambda batch: (batch.keys, batch.pooled[:, 1 : 1 + LIDAR_VIEWS]),
        views=LIDAR_VIEWS,
        shared=True,
    )


def view_scatter(rows: RowTreatment) -> Reading:
    """Scatter of the perturbed views around their prompt's mean, and of the prompts' means."""
    return Reading(
        "view_scatter",
        "pooled",
        lambda width: ClassScatter(width, views=LIDAR_VIEWS),
        lambda batch: (batch.pooled[:, 1 : 1 + LIDAR_VIEWS],),
        views=LIDAR_VIEWS,
        shared=True,
    )

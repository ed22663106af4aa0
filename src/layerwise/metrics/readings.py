"""Readings: what is read from a layer while data streams by. A shared reading is stored once for all metrics."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.base import Accumulator
from layerwise.metrics.accumulators.class_scatter import ClassScatter
from layerwise.metrics.accumulators.frequent_directions import FrequentDirections
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.accumulators.running_mean import RunningMean
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.code_hash import code_hash
from layerwise.metrics.ops.precision import to_float64
from layerwise.metrics.ops.rows import RowTreatment, treat_rows, unit_rows
from layerwise.metrics.ops.spectrum import eigenvalues, spectrum

SAMPLE_ROWS = 2048
SAMPLE_PAIRS = 2048
SAMPLE_VIEW_PROMPTS = 256
LIDAR_VIEWS = 16

# Chunk size in elements: few chunks mean few calls, but four megabytes still fit the CPU cache; a GPU needs more.
CHUNK_ELEMENTS = {"cpu": 2**20}


@dataclass(frozen=True)
class LayerBatch:
    """The hidden states of one layer for a batch of B examples.

    View 0 is the original example; views 1, 2, and so on are its perturbed copies.

    Args:
        keys: hashed ids of the examples, (B,).
        tokens: hidden states of the originals, (B, T, D).
        mask: which tokens count, (B, T).
        pooled: one pooled vector per view, (B, V, D).
    """

    keys: Tensor
    tokens: Tensor
    mask: Tensor
    pooled: Tensor

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens and mask of a few prompts at a time, so that intermediate results stay small and in the cache."""
        elements = CHUNK_ELEMENTS.get(self.tokens.device.type, 2**24)
        step = max(1, elements // max(1, self.tokens[0].numel())) if len(self.tokens) else 1
        return zip(torch.split(self.tokens, step), torch.split(self.mask, step), strict=True)


@dataclass(frozen=True)
class Reading:
    """What is read from each batch of a layer, and the accumulator that keeps it.

    Reading and accumulating are two steps, so that a batch that fails half-way through the layers leaves no trace.

    A reading is identified by its name, its metric's name and a hash of its code: two readings with one name are kept
    apart, and a reading whose code changed does not continue what the old code accumulated. With `shared`, the name
    alone identifies it, and all metrics with a reading of that name share one accumulator; layerwise's own readings do.

    Args:
        name: name of the reading.
        input_kind: "tokens" (the tokens of each prompt) or "pooled" (one vector per view).
        make_accumulator: makes the accumulator for width D.
        read: reduces a batch to the tensors that the accumulator's `update` takes.
        views: how many perturbed copies it needs beside the original.
        columns: names of the numbers that it computes per prompt, so that they can be kept prompt by prompt.
        finish: turns what was accumulated into what scores are computed from, once for all metrics that share it.
        shared: whether metrics share what was accumulated under this name.
    """

    name: str
    input_kind: Literal["tokens", "pooled"]
    make_accumulator: Callable[[int], Accumulator] = field(compare=False)
    read: Callable[[LayerBatch], tuple[Tensor, ...]] = field(compare=False)
    views: int = 0
    columns: tuple[str, ...] = ()
    finish: Callable[[Any, RowTreatment], Any] = field(default=lambda kept, rows: kept, compare=False)
    shared: bool = False

    def key(self, metric: str) -> str:
        """The name under which it is accumulated for a metric.

        Args:
            metric: name of the metric.
        """
        return self.name if self.shared else f"{self.name}@{metric}#{code_hash(self.make_accumulator, self.read)}"


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of the pooled rows of all prompts, the numbers of rows used and skipped, and a note on accuracy."""

    values: Tensor
    n: int
    skipped: int
    note: str = ""


def per_prompt_values(
    name: str, function: Callable[[Tensor, Tensor], Tensor], columns: tuple[str, ...], *, shared: bool = False
) -> Reading:
    """Means over prompts of function(tokens (B, T, D), mask (B, T)) -> (B, columns)."""

    def read(batch: LayerBatch) -> tuple[Tensor]:
        chunks = [require_values(function(tokens, mask), len(tokens), columns) for tokens, mask in batch.chunks()]
        return (torch.cat(chunks),)

    return Reading(name, "tokens", lambda width: RunningMean(len(columns)), read, columns=columns, shared=shared)


def require_values(values: object, prompts: int, columns: tuple[str, ...]) -> Tensor:
    """The values as (B, columns); raises if a metric's function returned something else."""
    shapes = [(prompts, len(columns))] + [(prompts,)] * (len(columns) == 1)
    if not isinstance(values, Tensor) or values.shape not in shapes:
        found = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        raise InputError(
            f"the function of {', '.join(columns)} must return a tensor of shape {shapes[-1]}, one number per prompt "
            f"of the batch, not {found}"
        )
    return values.reshape(prompts, len(columns))


def mean_over_prompts(
    name: str, function: Callable[[Tensor, Tensor], Tensor], *, shared: bool = False
) -> Callable[[RowTreatment], Reading]:
    """A reading for `Metric`: the mean over prompts of a function of each prompt's tokens.

    Args:
        name: name of the number, usually that of the metric.
        function: takes hidden states (B, T, D) and a mask of the tokens that count (B, T), returns one number per
            prompt (B,); nan where it is undefined, which is counted as skipped.
        shared: whether the name alone identifies the reading; leave it False for metrics of your own.

    Returns:
        What `Metric(reading=...)` takes: a function of the row treatment that returns a `Reading`.

    Example:
        >>> reading = layerwise.mean_over_prompts("length", lambda tokens, mask: mask.sum(dim=-1).float())
        >>> reading("raw").columns
        ('length',)
    """

    def reading(rows: RowTreatment) -> Reading:
        def on_treated_rows(tokens: Tensor, mask: Tensor) -> Tensor:
            return function(tokens if rows == "raw" else treat_rows(tokens, rows, mask), mask)

        return per_prompt_values(f"{name}/{rows}", on_treated_rows, (name,), shared=shared)

    return reading


def pooled_rows(rows: RowTreatment) -> Reading:
    """A reading for `Metric`: the second moment of the pooled vectors of all prompts.

    Centered unit rows need the final mean, so they are computed from a sample of 2,048 vectors.

    Args:
        rows: the row treatment: raw, unit, centered or centered_unit.

    Returns:
        A `Reading` whose result holds the eigenvalues, for `spectrum_score`.

    Example:
        >>> layerwise.pooled_rows("raw").input_kind
        'pooled'
    """
    if rows == "centered_unit":
        return replace(row_sample(rows), finish=spectrum_of_sample)

    def read(batch: LayerBatch) -> tuple[Tensor]:
        return (unit_rows(batch.pooled[:, 0]) if rows == "unit" else batch.pooled[:, 0],)

    # Raw and centred rows share one state, since centring at the end is exact.
    name = "pooled_unit_rows" if rows == "unit" else "pooled_rows"
    return Reading(name, "pooled", SecondMoment, read, finish=spectrum_of_moment, shared=True)


def spectrum_of_moment(moment: SecondMoment | FrequentDirections, rows: RowTreatment) -> Spectrum:
    """From all rows, using the smaller Gram matrix: N x N while rows are stored, otherwise D x D."""
    if (rows_seen := moment.rows()) is not None:
        values = (
            spectrum(rows_seen, "centered" if rows == "centered" else "raw")
            if len(rows_seen)
            else rows_seen.new_zeros(1)
        )
        return Spectrum(
            values, len(rows_seen), moment.skipped, moment.note(float((rows_seen**2).sum()), float(values.sum()))
        )
    count, mean, scatter = moment.moments()
    raw = scatter + count * torch.outer(mean, mean)
    gram = scatter if rows == "centered" else raw
    note = moment.note(float(raw.trace()), float(gram.trace()))
    return Spectrum(eigenvalues(gram, max(count, moment.width)), count, moment.skipped, note)


def spectrum_of_sample(sample: RowSample, rows: RowTreatment) -> Spectrum:
    """From the sampled rows."""
    rows_seen = to_float64(sample.rows[:, 0])
    return Spectrum(
        spectrum(rows_seen, rows) if len(rows_seen) else rows_seen.new_zeros(1), len(rows_seen), sample.skipped
    )


def row_sample(rows: RowTreatment) -> Reading:
    """The original rows with the smallest hashed ids, untreated: `rows` is applied when they are used."""
    return Reading(
        "row_sample",
        "pooled",
        lambda width: RowSample(width, views=1, size=SAMPLE_ROWS),
        lambda batch: (batch.keys, batch.pooled[:, :1]),
        shared=True,
    )


def mean_unit_row(rows: RowTreatment) -> Reading:
    """The mean of the original rows, each scaled to unit length; zero rows are counted as skipped."""

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
    """All perturbed views of the few examples with the smallest hashed ids, for the interval of LiDAR."""
    return Reading(
        "view_sample",
        "pooled",
        lambda width: RowSample(width, views=LIDAR_VIEWS, size=SAMPLE_VIEW_PROMPTS),
        lambda batch: (batch.keys, batch.pooled[:, 1 : 1 + LIDAR_VIEWS]),
        views=LIDAR_VIEWS,
        shared=True,
    )


def view_scatter(rows: RowTreatment) -> Reading:
    """Scatter of the perturbed views around the mean of their prompt, and scatter of the prompt means."""
    return Reading(
        "view_scatter",
        "pooled",
        lambda width: ClassScatter(width, views=LIDAR_VIEWS),
        lambda batch: (batch.pooled[:, 1 : 1 + LIDAR_VIEWS],),
        views=LIDAR_VIEWS,
        shared=True,
    )

"""Metrics of layerwise as metrics of torchmetrics, which sync over processes."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from layerwise.core.checks import POOLINGS, PoolingChoice, RowTreatment, require_choice
from layerwise.core.errors import InputError, MissingExtra
from layerwise.metrics.accumulators.base import Accumulator, dump_states, parse_states
from layerwise.metrics.accumulators.kinds import accumulator_from_state
from layerwise.metrics.base import Metric
from layerwise.metrics.ops.pooling import pool
from layerwise.metrics.readings import LayerBatch, Reading
from layerwise.verbs.scan.plan import choose_metrics

if TYPE_CHECKING:
    import torchmetrics

LENGTH_BYTES = 8  # before each state: how many bytes it has
STATE = "state"  # the only one in its file


def as_torchmetric(
    metric: str | Metric, *, rows: RowTreatment | None = None, pooling: PoolingChoice = "mean"
) -> "torchmetrics.Metric":
    """A metric of layerwise that goes into a MetricCollection and syncs over processes.

    Its `update` takes the hidden states of one layer (B, T, D) and a mask of the tokens that count (B, T); without a
    mask all count. `compute` gives the value over all batches of all processes, the same as `scan` would (up to
    rounding: processes are merged in the order of their ranks).

    Args:
        metric: a name from `layerwise scan --metrics list`, or a Metric. Metrics that need perturbed views of the texts
            cannot be used.
        rows: what is done to rows first: raw, unit, centered or centered_unit; None for the metric's default.
        pooling: how tokens become one vector per text: mean, last, first or max.

    Returns:
        A torchmetrics.Metric.

    Raises:
        InputError: there is no such metric, it needs views, or it does not support these rows.
        MissingExtra: torchmetrics is not installed.

    Example:
        >>> import torch
        >>> rank = layerwise.training.as_torchmetric("effective_rank")
        >>> rank.update(torch.eye(4)[:, None, :])  # four texts of one token
        >>> round(rank.compute().item(), 4)
        4.0
    """
    if find_spec("torchmetrics") is None:
        raise MissingExtra("as_torchmetric needs torchmetrics: pip install torchmetrics")
    (chosen,) = choose_metrics([metric])
    treatment = rows or chosen.rows[0]
    require_choice("rows", treatment, chosen.rows)
    require_choice("pooling", pooling, POOLINGS)
    if chosen.reading(treatment).views:
        raise InputError(f"{chosen.name} needs perturbed views of the texts, which a torchmetric does not have")
    layer_metric: torchmetrics.Metric = metric_class()(chosen, treatment, pooling)
    return layer_metric


@cache
def metric_class() -> Any:
    """The class, made on first use, since torchmetrics may be missing."""
    from torchmetrics import Metric as TorchMetric

    class LayerMetric(TorchMetric):
        """One metric of one layer.

        torchmetrics gathers, copies and resets `states`, which is what was accumulated as one tensor of bytes. Updates
        go to the accumulator itself; the bytes are made only when they are asked for.
        """

        full_state_update = False
        kept: Accumulator | None  # None if only the bytes are there
        stored: list[Tensor] | Tensor | None  # None if the accumulator has changed since; one tensor after a sync

        def __init__(self, metric: Metric, rows: RowTreatment, pooling: PoolingChoice) -> None:
            super().__init__()
            self.metric, self.rows, self.pooling = metric, rows, pooling
            self.add_state("states", default=[], dist_reduce_fx="cat")
            self.reset()

        @property
        def states(self) -> list[Tensor] | Tensor:
            if self.stored is None:
                assert self.kept is not None, "one of both is always there"
                self.stored = [as_bytes(self.kept).to(self.device)]
            return self.stored

        @states.setter
        def states(self, states: list[Tensor] | Tensor) -> None:
            self.stored, self.kept = states, None

        def __getstate__(self) -> dict[str, Any]:
            return {**super().__getstate__(), "stored": self.states, "kept": None}

        def accumulated(self) -> Accumulator | None:
            """What was accumulated; None before the first update."""
            if self.kept is None:
                self.kept = merged(self.states)
            return self.kept

        def reset(self) -> None:
            super().reset()
            # Never an empty list: torchmetrics would gather it as floats from a process that has seen no data.
            self.states = [torch.zeros(0, dtype=torch.uint8, device=self.device)]

        def update(self, hidden: Tensor, mask: Tensor | None = None) -> None:
            reading = self.metric.reading(self.rows)
            values = reading.read(layer_batch(hidden.detach(), mask, self.pooling))
            kept = self.accumulated() or reading.make_accumulator(hidden.shape[-1])
            kept.update(*(part.cpu() for part in values))
            self.kept, self.stored = kept, None

        def compute(self) -> Tensor:
            reading: Reading = self.metric.reading(self.rows)
            kept = self.accumulated()
            if kept is None:
                return torch.tensor(torch.nan, dtype=torch.float64)
            estimate = self.metric.score(reading.finish(kept, self.rows), self.rows)
            return torch.tensor(estimate.value, dtype=torch.float64)

    return LayerMetric


def layer_batch(hidden: Tensor, mask: Tensor | None, pooling: PoolingChoice) -> LayerBatch:
    """What readings take: hidden (B, T, D) and mask (B, T). Examples are known by a hash of their pooled vector."""
    if hidden.dim() != 3 or (mask is not None and mask.shape != hidden.shape[:2]):
        shapes = [tuple(hidden.shape), *([] if mask is None else [tuple(mask.shape)])]
        raise InputError(f"expected hidden states (B, T, D) and a mask (B, T), got shapes {shapes}")
    counted = torch.ones(hidden.shape[:2], dtype=torch.bool) if mask is None else mask.bool()
    counted = counted.to(hidden.device)
    pooled = pool(hidden, counted, pooling)  # (B, D)
    keys = [row_hash(row) for row in pooled.float().cpu()]
    return LayerBatch(torch.tensor(keys, dtype=torch.int64), hidden, counted, pooled[:, None])


def row_hash(row: Tensor) -> int:
    return int.from_bytes(hashlib.blake2b(row.numpy().tobytes(), digest_size=8).digest(), "little", signed=True)


def as_bytes(kept: Accumulator) -> Tensor:
    """An accumulator as a tensor of bytes, after its length, so that several can be concatenated."""
    data = dump_states({STATE: kept.to_state()})
    return torch.frombuffer(bytearray(len(data).to_bytes(LENGTH_BYTES, "little") + data), dtype=torch.uint8)


def merged(states: Sequence[Tensor] | Tensor) -> Accumulator | None:
    """All accumulators in one; None if there is none. After a sync, torchmetrics hands over a single tensor."""
    parts = [states] if isinstance(states, Tensor) else states
    total: Accumulator | None = None
    for data in split(b"".join(part.cpu().numpy().tobytes() for part in parts)):
        kept = accumulator_from_state(parse_states(data)[STATE])
        if total is None:
            total = kept
        else:
            total.merge(kept)
    return total


def split(data: bytes) -> Iterator[bytes]:
    """The states in concatenated bytes."""
    start = 0
    while start < len(data):
        begin = start + LENGTH_BYTES
        start = begin + int.from_bytes(data[start:begin], "little")
        yield data[begin:start]

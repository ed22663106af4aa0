"""What probes read of each layer: pooled vectors, means of normalised positions, and the positions themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from layerwise.core.checks import PoolingChoice
from layerwise.core.recipe import Readout
from layerwise.models.network import Network
from layerwise.models.taps import apply_final_norm
from layerwise.ops.pooling import pool
from layerwise.ops.precision import at_least_float32
from layerwise.passes.batches import Batch


@dataclass(frozen=True)
class ExampleFeatures:
    """One example at one readout. D is the width of the model, P the number of its positions that count."""

    pooled: Tensor  # (D,)
    normalised_mean: Tensor  # (D,) mean over positions, each scaled to mean 0 and variance 1 first
    positions: Tensor  # (P, D), or (0, D) where they are not kept


@dataclass
class PositionsConsumer:
    """Collects the features per readout and example, by the example's digest; padding is never kept."""

    network: Network
    readouts: Sequence[Readout]
    keep_positions: bool
    dtype: torch.dtype  # of kept positions
    readings: dict[Readout, dict[int, ExampleFeatures]] = field(default_factory=dict)
    pending: dict[Readout, list[ExampleFeatures]] = field(default_factory=dict)

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        for readout in self.readouts:
            if readout.layer == number:
                states = hidden if readout.norm == "raw" else apply_final_norm(self.network.structure, hidden)
                mask = batch.counted_or_all(states, readout.tokens)
                self.pending[readout] = self.read(states[:, 0], mask[:, 0], cast(PoolingChoice, readout.pooling))

    def read(self, states: Tensor, mask: Tensor, pooling: PoolingChoice) -> list[ExampleFeatures]:
        """states (B, T, D) and the mask (B, T) of positions that count."""
        pooled = pool(states, mask, pooling).cpu()
        means = pool(layer_norm(at_least_float32(states), states.shape[-1:]), mask, "mean").cpu()
        counted = mask if self.keep_positions else torch.zeros_like(mask)
        kept = [rows[chosen].to(self.dtype).cpu() for rows, chosen in zip(states, counted, strict=True)]
        return [ExampleFeatures(*parts) for parts in zip(pooled, means, kept, strict=True)]

    def commit(self, batch: Batch) -> None:
        for readout, rows in self.pending.items():
            stored = self.readings.setdefault(readout, {})
            stored.update(zip((example.digest for example in batch.examples), rows, strict=True))
        self.discard()

    def discard(self) -> None:
        self.pending = {}

"""What probes read of each layer: pooled vectors, means of normalised positions, and the positions themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from layerwise.core.checks import PoolingChoice
from layerwise.core.recipe import Readout
from layerwise.metrics.ops.pooling import pool
from layerwise.metrics.ops.precision import at_least_float32
from layerwise.passes.batches import Batch
from layerwise.passes.hidden_states import HiddenStates
from layerwise.passes.vectors import GrowingRows


class Features(NamedTuple):
    """What is read of several examples at one readout. D is the width of the model."""

    pooled: Tensor  # (B, D)
    normalised_mean: Tensor  # (B, D) means over positions, each scaled to mean 0 and variance 1 first
    positions: Tensor  # (P, D) the positions that count, of all examples one after another; (0, D) if none are kept
    lengths: Tensor  # (B,) how many positions each example has


@dataclass
class LayerFeatures:
    """The features of all examples at one readout, added batch by batch."""

    pooled: GrowingRows = field(default_factory=GrowingRows)
    normalised_means: GrowingRows = field(default_factory=GrowingRows)
    positions: GrowingRows = field(default_factory=GrowingRows)
    places: dict[int, tuple[int, range]] = field(default_factory=dict)  # by digest: its row, its positions

    def add(self, digests: Sequence[int], features: Features) -> None:
        rows = self.pooled.add(features.pooled)
        self.normalised_means.add(features.normalised_mean)
        start = self.positions.add(features.positions).start
        for digest, row, length in zip(digests, rows, features.lengths.tolist(), strict=True):
            self.places[digest] = row, range(start, start + length)
            start += length

    def of(self, digests: Sequence[int]) -> Features:
        """The features of these examples, in that order."""
        rows, positions = zip(*(self.places[digest] for digest in digests), strict=True)
        return Features(
            self.pooled.take(rows),
            self.normalised_means.take(rows),
            self.positions.take(place for one in positions for place in one),
            torch.tensor([len(one) for one in positions]),
        )


@dataclass
class PositionsConsumer:
    """Collects the features of each readout; padding is never kept."""

    network: HiddenStates
    readouts: Sequence[Readout]
    keep_positions: bool
    dtype: torch.dtype  # of kept positions
    places: Mapping[int, Sequence[int]] | None = None  # by digest: positions to keep instead of all that count
    features: dict[Readout, LayerFeatures] = field(default_factory=dict)
    pending: dict[Readout, Features] = field(default_factory=dict)

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        for readout in self.readouts:
            if readout.layer == number:
                states = hidden if readout.norm == "raw" else self.network.normed(hidden)
                states, mask = batch.counted_states(states, readout.tokens)
                kept = self.kept(mask[:, 0], batch)
                self.pending[readout] = self.read(states[:, 0], mask[:, 0], kept, cast(PoolingChoice, readout.pooling))

    def kept(self, mask: Tensor, batch: Batch) -> Tensor:
        """Which positions (B, T) are kept, of those that count."""
        if not self.keep_positions or self.places is None:
            return mask.bool() if self.keep_positions else torch.zeros_like(mask, dtype=torch.bool)
        kept = torch.zeros_like(mask, dtype=torch.bool)
        for row, example in enumerate(batch.examples):
            kept[row, torch.tensor(self.places[example.digest], dtype=torch.long)] = True
        return kept

    def read(self, states: Tensor, mask: Tensor, kept: Tensor, pooling: PoolingChoice) -> Features:
        """states (B, T, D), and the masks (B, T) of positions that count and of those that are kept."""
        means = pool(layer_norm(at_least_float32(states), states.shape[-1:]), mask, "mean")
        return Features(pool(states, mask, pooling), means, states[kept].to(self.dtype), kept.sum(dim=1))

    def keep(self, batch: Batch) -> None:
        digests = [example.digest for example in batch.examples]
        for readout, features in self.pending.items():
            self.features.setdefault(readout, LayerFeatures()).add(digests, features)
        self.discard()

    def finish(self, batch: Batch) -> None:
        pass

    def discard(self) -> None:
        self.pending = {}

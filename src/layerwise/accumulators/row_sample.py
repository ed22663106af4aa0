"""Row sample: the rows of the k examples with the smallest hashed ids, whatever the split and the order.

One view makes a sample of rows; two views make a sample of pairs.
"""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from layerwise.accumulators.base import State, require_same_settings
from layerwise.errors import InputError


@dataclass
class RowSample:
    """Rows (k, V, D) of the k smallest keys, in the order of the keys, in the float type they came in."""

    width: int
    views: int = 1
    size: int = 2048
    keys: Tensor = field(init=False)
    kept: Tensor = field(init=False)
    seen: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.keys = torch.zeros(0, dtype=torch.int64)
        self.kept = torch.zeros(0, self.views, self.width)

    def update(self, keys: Tensor, rows: Tensor) -> None:
        """keys (B,) int64 hashes of example ids, rows (B, V, D); an example with a nan is counted as skipped."""
        if rows.shape[1:] != (self.views, self.width):
            raise InputError(f"expected rows (B, {self.views}, {self.width}), got {tuple(rows.shape)}")
        rows, keys = rows.detach().cpu(), keys.cpu()
        known = ~rows.isnan().any(dim=-1).any(dim=-1)
        self.seen += int(known.sum())
        self.skipped += int((~known).sum())
        self._keep(keys[known], rows[known])

    def merge(self, other: Self) -> None:
        require_same_settings(self.to_state().settings, other.to_state().settings)
        self.seen += other.seen
        self.skipped += other.skipped
        self._keep(other.keys, other.kept)

    def _keep(self, keys: Tensor, rows: Tensor) -> None:
        if len(self.keys) == self.size and len(keys):  # most rows of a long stream are turned away here, uncopied
            near = keys < self.keys[-1]
            keys, rows = keys[near], rows[near]
        if not len(keys):
            return
        keys = torch.cat([self.keys, keys])
        order = keys.argsort(stable=True)[: self.size]
        self.keys = keys[order]
        self.kept = torch.cat([self.kept.to(rows.dtype), rows])[order]

    def bytes_for(self, n: int) -> int:
        return min(n, self.size) * (8 + 4 * self.views * self.width)

    def to_state(self) -> State:
        settings = {"kind": "row_sample", "width": self.width, "views": self.views, "size": self.size}
        counts = torch.tensor([self.seen, self.skipped], dtype=torch.int64)
        return State(settings, {"keys": self.keys, "kept": self.kept, "counts": counts})

    @classmethod
    def from_state(cls, state: State) -> Self:
        sample = cls(*(int(state.settings[name]) for name in ("width", "views", "size")))
        sample.keys, sample.kept = state.tensors["keys"], state.tensors["kept"]
        sample.seen, sample.skipped = state.tensors["counts"].tolist()
        return sample

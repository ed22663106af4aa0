"""Row sample: the rows of the k examples with the smallest hashed ids, independent of split and order.

With one view it is a sample of rows, with two a sample of pairs.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.base import State, require_same_settings

UNDEFINED_PER_ROW = 16  # maximum number of stored keys of undefined examples, per row of the sample


@dataclass
class RowSample:
    """Rows (k, V, D) of the k smallest keys, sorted by key, in their original float type.

    Undefined examples are counted only within the range of the sample, so `n` and `skipped` refer to the same examples.
    """

    width: int
    views: int = 1
    size: int = 2048
    keys: Tensor = field(init=False)
    rows: Tensor = field(init=False)
    undefined_keys: Tensor = field(init=False)  # the smallest keys of undefined examples
    seen: int = 0
    undefined_count: int = 0  # over all examples seen

    def __post_init__(self) -> None:
        self.undefined_keys = torch.zeros(0, dtype=torch.int64)
        self.keys = torch.zeros(0, dtype=torch.int64)
        self.rows = torch.zeros(0, self.views, self.width)

    def update(self, keys: Tensor, rows: Tensor) -> None:
        """keys (B,) int64 hashes of example ids, rows (B, V, D); an example with NaN is counted as skipped."""
        if rows.shape[1:] != (self.views, self.width):
            raise InputError(f"expected rows (B, {self.views}, {self.width}), got {tuple(rows.shape)}")
        rows, keys = rows.detach().cpu(), keys.cpu()
        defined = ~rows.isnan().any(dim=-1).any(dim=-1)
        self.seen += int(defined.sum())
        self.undefined_count += int((~defined).sum())
        self._add(keys[defined], rows[defined])
        self._add_undefined(keys[~defined])

    def merge(self, other: Self) -> None:
        require_same_settings(self.settings, other.settings)
        self.seen += other.seen
        self.undefined_count += other.undefined_count
        self._add(other.keys, other.rows)
        self._add_undefined(other.undefined_keys)

    @property
    def skipped(self) -> int:
        """The number of undefined examples within the range of the sample."""
        return self.skipped_before(len(self.keys))

    def skipped_before(self, n: int) -> int:
        """The number of undefined examples before the n-th sampled one; all of them if the sample is not full."""
        if n == len(self.keys) < self.size:
            return self.undefined_count
        return int((self.undefined_keys < self.keys[n - 1]).sum()) if n else 0

    def _add(self, keys: Tensor, rows: Tensor) -> None:
        if len(self.keys) == self.size and len(keys):  # most rows of a long stream are rejected here, without a copy
            is_smaller = keys < self.keys[-1]
            keys, rows = keys[is_smaller], rows[is_smaller]
        if not len(keys):
            return
        keys = torch.cat([self.keys, keys])
        order = keys.argsort(stable=True)[: self.size]
        self.keys = keys[order]
        self.rows = torch.cat([self.rows.to(rows.dtype), rows])[order]

    def _add_undefined(self, keys: Tensor) -> None:
        """Stores the keys within the range of the sample, up to a limit, so that they never take more memory than the
        sample."""
        keys = torch.cat([self.undefined_keys, keys]).sort().values
        if len(self.keys) == self.size:
            keys = keys[keys < self.keys[-1]]
        self.undefined_keys = keys[: UNDEFINED_PER_ROW * self.size]

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "row_sample", "width": self.width, "views": self.views, "size": self.size}

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.rows.nbytes + self.undefined_keys.nbytes

    def bytes_for(self, n: int) -> int:
        return min(n, self.size) * (8 + 4 * self.views * self.width)

    def to_state(self) -> State:
        counts = torch.tensor([self.seen, self.undefined_count], dtype=torch.int64)
        tensors = {"keys": self.keys, "kept": self.rows, "counts": counts, "undefined": self.undefined_keys}
        return State(self.settings, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        sample = cls(*(int(state.settings[name]) for name in ("width", "views", "size")))
        sample.keys, sample.rows = state.tensors["keys"], state.tensors["kept"]
        sample.seen, sample.undefined_count = state.tensors["counts"].tolist()
        sample.undefined_keys = state.tensors["undefined"]
        return sample

"""Frequent directions: a small matrix that approximates the second moment of all rows, with an error bound.

Ghashami, Liberty, Phillips and Woodruff, SIAM J. Comput. 2016: when there are too many rows, every squared singular
value is reduced by that of the first dropped direction. `lost` is the sum of these reductions.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from layerwise.metrics.accumulators.base import State, drop_nan_rows, require_same_settings


@dataclass
class FrequentDirections:
    """At most 2 x `size` rows B for all rows A seen: A'A - B'B has eigenvalues between 0 and `error_bound`.

    Count, mean and sum of squares are exact. Up to 2 x `size` rows are stored unchanged, so nothing is lost.
    """

    width: int
    size: int
    count: int = 0
    skipped: int = 0
    error_bound: float = 0.0
    sum_of_squares: float = 0.0  # the trace of A'A
    mean: Tensor = field(init=False)
    sketch: Tensor = field(init=False)  # B

    def __post_init__(self) -> None:
        self.mean = torch.zeros(self.width, dtype=torch.float64)
        self.sketch = torch.zeros(0, self.width, dtype=torch.float64)

    def update(self, rows: Tensor) -> None:
        """rows (B, D); a row with NaN is counted as skipped."""
        rows, dropped = drop_nan_rows(rows, self.width)
        self.skipped += dropped
        for chunk in torch.split(rows, self.size):  # never more than three times `size` rows in memory
            self._add(len(chunk), chunk.mean(dim=0) if len(chunk) else self.mean, float((chunk**2).sum()), chunk)

    def merge(self, other: Self) -> None:
        require_same_settings(self.settings, other.settings)
        self.skipped += other.skipped
        self.error_bound += other.error_bound
        self._add(other.count, other.mean, other.sum_of_squares, other.sketch)

    def _add(self, count: int, mean: Tensor, squares: float, rows: Tensor) -> None:
        total = max(1, self.count + count)
        self.mean = self.mean + (mean - self.mean) * (count / total)
        self.count, self.sum_of_squares = self.count + count, self.sum_of_squares + squares
        self.sketch = torch.cat([self.sketch, rows])
        if len(self.sketch) > 2 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        """Keeps the `size` largest directions, each reduced by the square of the next one."""
        values, vectors = torch.linalg.eigh(self.sketch @ self.sketch.mT)
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)[:, : self.size]
        threshold = values[self.size]
        longest = values[: self.size]
        scale = torch.where(
            longest > threshold, (1 - threshold / longest.clamp(min=threshold)).clamp(min=0), 0.0
        ).sqrt()
        self.sketch = scale[:, None] * (vectors.mT @ self.sketch)
        self.error_bound += float(threshold)

    def rows(self) -> Tensor | None:
        """All rows seen, (N, D), if nothing was compressed yet; otherwise None."""
        return self.sketch if len(self.sketch) == self.count else None

    def moments(self) -> tuple[int, Tensor, Tensor]:
        """Count, mean and D x D scatter; the missing part of the sum of squares is spread evenly over the diagonal."""
        gram = self.sketch.mT @ self.sketch
        gram.diagonal().add_(max(0.0, self.sum_of_squares - float(gram.trace())) / self.width)
        return self.count, self.mean, gram - self.count * torch.outer(self.mean, self.mean)

    def note(self, squares: float, total: float) -> str:
        """The accuracy of eigenvalues whose sum is `total`."""
        if self.rows() is not None or not total > 0:
            return ""
        error = self.error_bound / total
        return f"sketch of {self.size} directions: each eigenvalue is accurate to {error:.1e} of their sum"

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "frequent_directions", "width": self.width, "size": self.size}

    @property
    def nbytes(self) -> int:
        return self.sketch.nbytes + self.mean.nbytes

    def bytes_for(self, n: int) -> int:
        return 8 * self.width * min(n, 2 * self.size)

    def to_state(self) -> State:
        numbers = torch.tensor([self.error_bound, self.sum_of_squares], dtype=torch.float64)
        counts = torch.tensor([self.count, self.skipped], dtype=torch.int64)
        return State(self.settings, {"kept": self.sketch, "mean": self.mean, "numbers": numbers, "counts": counts})

    @classmethod
    def from_state(cls, state: State) -> Self:
        accumulator = cls(int(state.settings["width"]), int(state.settings["size"]))
        accumulator.sketch, accumulator.mean = state.tensors["kept"], state.tensors["mean"]
        accumulator.error_bound, accumulator.sum_of_squares = state.tensors["numbers"].tolist()
        accumulator.count, accumulator.skipped = state.tensors["counts"].tolist()
        return accumulator

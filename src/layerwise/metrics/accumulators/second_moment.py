"""Second moment: count, mean and scatter of rows; stored as rows while that is smaller, then as a D x D matrix."""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from layerwise.metrics.accumulators.base import State, drop_nan_rows, require_same_settings, to_cpu_float64

# Scatter per row this small relative to the mean is rounding error.
ROUNDING_TOLERANCE = 16
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass
class SecondMoment:
    """Enough to compute the spectrum of all N rows, raw or centred, in at most D x D numbers.

    Rows are buffered, up to D rows. When the buffer is full, they are folded into count, mean and scatter: N <= D rows
    stay unchanged, and many rows cost one large matrix product instead of many small ones. Sums are float64; float32
    halves the memory and rounds once per fold.
    """

    width: int
    precision: str = "float64"
    folds: int = 0
    count: int = 0  # rows already folded
    mean: Tensor = field(init=False)
    scatter: Tensor | None = None  # sum of (x - mean)(x - mean)' over folded rows
    buffer: list[Tensor] = field(default_factory=list)
    skipped: int = 0

    def __post_init__(self) -> None:
        self.mean = torch.zeros(self.width, dtype=torch.float64)

    @property
    def total(self) -> int:
        """Number of rows seen, without skipped ones."""
        return self.count + sum(len(rows) for rows in self.buffer)

    def update(self, rows: Tensor) -> None:
        """rows (B, D); a row with NaN is counted as skipped."""
        rows, dropped = drop_nan_rows(rows, self.width)
        self.skipped += dropped
        self._append(rows)

    def merge(self, other: Self) -> None:
        require_same_settings(self.settings, other.settings)
        self.skipped += other.skipped
        self.folds += other.folds
        if other.scatter is not None:
            self._fold(other.count, other.mean, other.scatter)
        if other.buffer:  # as one tensor, as if loaded from disk, so that the result is bit-identical either way
            self._append(torch.cat(other.buffer))

    def _append(self, rows: Tensor) -> None:
        self.buffer.append(rows.to(DTYPES[self.precision]))
        if sum(len(r) for r in self.buffer) > self.width:
            self._fold_buffer()

    def _fold_buffer(self) -> None:
        rows, self.buffer = to_cpu_float64(self._buffered_rows()), []
        if len(rows):
            mean = rows.mean(dim=0)
            centered = rows - mean
            self._fold(len(rows), mean, centered.mT @ centered)

    def _fold(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        """Chan's update for matrices: exact for any split."""
        total = self.count + count
        shift = mean - self.mean
        scatter_sum = to_cpu_float64(scatter) if self.scatter is None else to_cpu_float64(self.scatter) + scatter
        corrected = scatter_sum + torch.outer(shift, shift) * (self.count * count / total)
        self.scatter, self.folds = corrected.to(DTYPES[self.precision]), self.folds + 1
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def moments(self) -> tuple[int, Tensor, Tensor]:
        """Count, mean and D x D scatter of all rows, including buffered ones.

        A scatter that is only rounding error of a large mean is returned as zero.
        """
        scatter = None if self.scatter is None else to_cpu_float64(self.scatter)
        total = type(self)(self.width, count=self.count, scatter=scatter)
        total.mean, total.buffer = self.mean, self.buffer
        total._fold_buffer()
        noise = total.count * (ROUNDING_TOLERANCE * torch.finfo(torch.float64).eps * total.mean.norm()) ** 2
        if total.scatter is None or total.scatter.trace() <= noise:
            total.scatter = torch.zeros(self.width, self.width, dtype=torch.float64)
        return total.count, total.mean, total.scatter

    def rows(self) -> Tensor | None:
        """All rows seen, (N, D), if none has been folded yet; otherwise None."""
        return to_cpu_float64(self._buffered_rows()) if self.scatter is None else None

    def _buffered_rows(self) -> Tensor:
        return torch.cat([torch.zeros(0, self.width, dtype=DTYPES[self.precision]), *self.buffer])

    def note(self, sum_of_squares: float, total: float) -> str:
        """The accuracy of eigenvalues whose sum is `total`; `sum_of_squares` is the sum of squares of the raw rows."""
        if self.precision == "float64" or not total > 0:
            return ""
        # Each fold rounds the scatter by a relative error of at most 2^-24, so an eigenvalue moves by at most that
        # fraction of the trace. Rounding of the rows counts twice, since they are squared.
        error = (self.folds + 2) * 2.0**-24 * sum_of_squares / total
        return f"float32 sums: each eigenvalue is accurate to {error:.1e} of their sum"

    def fold_buffer(self) -> None:
        """Folds the buffer if rows were folded before. Called once per shard, so that merging does not have to."""
        if self.scatter is not None:
            self._fold_buffer()

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "second_moment", "width": self.width, "precision": self.precision}

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (self.mean, self.scatter, *self.buffer) if tensor is not None)

    def bytes_for(self, n: int) -> int:
        rows, folded = min(n, self.width), 1 if n > self.width else 0
        return DTYPES[self.precision].itemsize * self.width * (rows + folded * self.width)

    def to_state(self) -> State:
        tensors = {"waiting": self._buffered_rows(), "mean": self.mean}
        tensors["counts"] = torch.tensor([self.count, self.skipped, self.folds], dtype=torch.int64)
        if self.scatter is not None:
            tensors["scatter"] = self.scatter
        return State(self.settings, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        count, skipped, folds = state.tensors["counts"].tolist()
        accumulator = cls(int(state.settings["width"]), state.settings["precision"], folds, count, skipped=skipped)
        accumulator.scatter = state.tensors.get("scatter")
        accumulator.mean = state.tensors["mean"]
        accumulator.buffer = [state.tensors["waiting"]]
        return accumulator


def moments_of_rows(rows: Tensor) -> tuple[int, Tensor, Tensor]:
    """Count, mean and scatter of the rows of a matrix (N, D)."""
    accumulator = SecondMoment(rows.shape[1])
    accumulator.update(rows)
    return accumulator.moments()

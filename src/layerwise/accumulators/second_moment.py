"""Second moment: count, mean and scatter of rows, kept as rows while that is smaller, then as a D x D matrix."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from layerwise.accumulators.base import State, known_rows, require_same_settings, to_cpu_float64

# Scatter this small against the mean, a row, is what rounding left of zero.
ROUNDING_STEPS = 16
PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


@dataclass
class SecondMoment:
    """Enough to know the spectrum of all N rows seen, raw or centred, in D x D numbers or fewer.

    Rows wait in a buffer of at most D rows. Only when it is full are they folded into count, mean and
    scatter: N <= D rows stay as they are, and many rows cost one large matrix product, not many small ones.
    Sums are float64; in float32, which takes half the memory, they are rounded once a fold.
    """

    width: int
    precision: str = "float64"
    folds: int = 0
    count: int = 0  # rows already folded
    mean: Tensor = field(init=False)
    scatter: Tensor | None = None  # sum of (x - mean)(x - mean)' over folded rows
    waiting: list[Tensor] = field(default_factory=list)
    skipped: int = 0

    def __post_init__(self) -> None:
        self.mean = torch.zeros(self.width, dtype=torch.float64)

    @property
    def total(self) -> int:
        """Rows seen and kept."""
        return self.count + sum(len(rows) for rows in self.waiting)

    def update(self, rows: Tensor) -> None:
        """rows (B, D); a row with a nan is counted as skipped."""
        rows, dropped = known_rows(rows, self.width)
        self.skipped += dropped
        self._wait(rows)

    def merge(self, other: Self) -> None:
        require_same_settings(self.to_state().settings, other.to_state().settings)
        self.skipped += other.skipped
        self.folds += other.folds
        if other.scatter is not None:
            self._fold(other.count, other.mean, other.scatter)
        if other.waiting:  # in one piece, as after a journey over a disk: the bits must not depend on it
            self._wait(torch.cat(other.waiting))

    def _wait(self, rows: Tensor) -> None:
        self.waiting.append(rows.to(PRECISIONS[self.precision]))
        if sum(len(r) for r in self.waiting) > self.width:
            self._fold_waiting()

    def _fold_waiting(self) -> None:
        rows, self.waiting = to_cpu_float64(self._waiting()), []
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
        self.scatter, self.folds = corrected.to(PRECISIONS[self.precision]), self.folds + 1
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def summed(self) -> tuple[int, Tensor, Tensor]:
        """Count, mean and D x D scatter of everything seen, waiting rows included.

        A scatter that is only the rounding noise of a large mean comes out as zero.
        """
        scatter = None if self.scatter is None else to_cpu_float64(self.scatter)
        total = type(self)(self.width, count=self.count, scatter=scatter)
        total.mean, total.waiting = self.mean, self.waiting
        total._fold_waiting()
        noise = total.count * (ROUNDING_STEPS * torch.finfo(torch.float64).eps * total.mean.norm()) ** 2
        if total.scatter is None or total.scatter.trace() <= noise:
            total.scatter = torch.zeros(self.width, self.width, dtype=torch.float64)
        return total.count, total.mean, total.scatter

    def rows(self) -> Tensor | None:
        """All rows seen, (N, D), while none has been folded; else None."""
        return to_cpu_float64(self._waiting()) if self.scatter is None else None

    def _waiting(self) -> Tensor:
        return torch.cat([torch.zeros(0, self.width, dtype=PRECISIONS[self.precision]), *self.waiting])

    def note(self, squares: float, total: float) -> str:
        """How exact eigenvalues are whose sum is `total`; `squares` is that of the rows as they came."""
        if self.precision == "float64" or not total > 0:
            return ""
        # Each fold rounds the numbers of the scatter by 2^-24 of them at most, so an eigenvalue by that part of their
        # sum; that the rows themselves were rounded counts twice, for they are squared.
        return f"float32 sums: each eigenvalue within {(self.folds + 2) * 2.0**-24 * squares / total:.1e} of their sum"

    def settle(self) -> None:
        """Folds what waits, where rows were folded before: done once a shard, so that merging need not do it."""
        if self.scatter is not None:
            self._fold_waiting()

    def bytes_for(self, n: int) -> int:
        rows, folded = min(n, self.width), 1 if n > self.width else 0
        return PRECISIONS[self.precision].itemsize * self.width * (rows + folded * self.width)

    def to_state(self) -> State:
        tensors = {"waiting": self._waiting(), "mean": self.mean}
        tensors["counts"] = torch.tensor([self.count, self.skipped, self.folds], dtype=torch.int64)
        if self.scatter is not None:
            tensors["scatter"] = self.scatter
        return State({"kind": "second_moment", "width": self.width, "precision": self.precision}, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        count, skipped, folds = state.tensors["counts"].tolist()
        accumulator = cls(int(state.settings["width"]), state.settings["precision"], folds, count, skipped=skipped)
        accumulator.scatter = state.tensors.get("scatter")
        accumulator.mean = state.tensors["mean"]
        accumulator.waiting = [state.tensors["waiting"]]
        return accumulator


def moments_of_rows(rows: Tensor) -> tuple[int, Tensor, Tensor]:
    """Count, mean and scatter of the rows of a matrix (N, D)."""
    accumulator = SecondMoment(rows.shape[1])
    accumulator.update(rows)
    return accumulator.summed()

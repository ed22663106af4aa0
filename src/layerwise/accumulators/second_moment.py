"""Second moment: count, mean and scatter of rows, kept as rows while that is smaller, then as a D x D matrix."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from layerwise.accumulators.base import State, require_same_settings, sixty_four
from layerwise.errors import InputError

# Scatter this small against the mean, a row, is what rounding left of zero.
ROUNDING_STEPS = 16


@dataclass
class SecondMoment:
    """Enough to know the spectrum of all N rows seen, raw or centred, in D x D numbers or fewer.

    Rows wait in a buffer of at most D rows. Only when it is full are they folded into count, mean and
    scatter: N <= D rows stay as they are, and many rows cost one large matrix product, not many small ones.
    """

    width: int
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
        if rows.shape[-1] != self.width:
            raise InputError(f"rows of width {rows.shape[-1]} given to a state of width {self.width}")
        rows = sixty_four(rows).reshape(-1, self.width)
        known = ~rows.isnan().any(dim=-1)
        self.skipped += int((~known).sum())
        self._wait(rows[known])

    def merge(self, other: Self) -> None:
        require_same_settings(self.to_state().settings, other.to_state().settings)
        self.skipped += other.skipped
        if other.scatter is not None:
            self._fold(other.count, other.mean, other.scatter)
        if other.waiting:  # in one piece, as after a journey over a disk: the bits must not depend on it
            self._wait(torch.cat(other.waiting))

    def _wait(self, rows: Tensor) -> None:
        self.waiting.append(rows)
        if sum(len(r) for r in self.waiting) > self.width:
            rows = torch.cat(self.waiting)
            self.waiting = []
            mean = rows.mean(dim=0)
            centered = rows - mean
            self._fold(len(rows), mean, centered.mT @ centered)

    def _fold(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        """Chan's update for matrices: exact for any split."""
        total = self.count + count
        shift = mean - self.mean
        known = scatter if self.scatter is None else self.scatter + scatter
        self.scatter = known + torch.outer(shift, shift) * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total

    def summed(self) -> tuple[int, Tensor, Tensor]:
        """Count, mean and D x D scatter of everything seen, waiting rows included.

        A scatter that is only the rounding noise of a large mean comes out as zero.
        """
        whole = type(self)(self.width, count=self.count, scatter=self.scatter)
        whole.mean = self.mean
        if self.waiting and (rows := torch.cat(self.waiting)).numel():
            mean = rows.mean(dim=0)
            whole._fold(len(rows), mean, (rows - mean).mT @ (rows - mean))
        noise = whole.count * (ROUNDING_STEPS * torch.finfo(torch.float64).eps * whole.mean.norm()) ** 2
        if whole.scatter is None or whole.scatter.trace() <= noise:
            whole.scatter = torch.zeros(self.width, self.width, dtype=torch.float64)
        return whole.count, whole.mean, whole.scatter

    def rows(self) -> Tensor | None:
        """All rows seen, (N, D), while none has been folded; else None."""
        empty = torch.zeros(0, self.width, dtype=torch.float64)
        return torch.cat([empty, *self.waiting]) if self.scatter is None else None

    def bytes_for(self, n: int) -> int:
        rows, folded = min(n, self.width), 1 if n > self.width else 0
        return 8 * self.width * (rows + folded * self.width)

    def to_state(self) -> State:
        waiting = torch.cat([torch.zeros(0, self.width, dtype=torch.float64), *self.waiting])
        tensors = {"waiting": waiting, "mean": self.mean}
        tensors["counts"] = torch.tensor([self.count, self.skipped], dtype=torch.int64)
        if self.scatter is not None:
            tensors["scatter"] = self.scatter
        return State({"kind": "second_moment", "width": self.width}, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        count, skipped = state.tensors["counts"].tolist()
        kept = cls(int(state.settings["width"]), count=count, scatter=state.tensors.get("scatter"), skipped=skipped)
        kept.mean = state.tensors["mean"]
        kept.waiting = [state.tensors["waiting"]]
        return kept

"""Running mean: count, mean and variance of numbers or vectors, and how many were undefined."""

from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from layerwise.metrics.accumulators.base import State, require_same_settings, to_cpu_float64


@dataclass
class RunningMean:
    """Count, mean, squared deviations and skipped count for each of `width` columns; NaN counts as skipped."""

    width: int = 1
    count: Tensor = field(init=False)
    mean: Tensor = field(init=False)
    squared_deviations: Tensor = field(init=False)  # sum of squared deviations from the mean
    skipped: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.count, self.mean, self.squared_deviations, self.skipped = torch.zeros(4, self.width, dtype=torch.float64)

    def update(self, values: Tensor) -> None:
        """values (B, width); NaN is counted as skipped in its column."""
        values = to_cpu_float64(values).reshape(-1, self.width)
        defined = ~values.isnan()
        count = defined.sum(dim=0).double()
        mean = torch.where(defined, values, 0.0).sum(dim=0) / count.clamp(min=1)
        squared_deviations = (torch.where(defined, values - mean, 0.0) ** 2).sum(dim=0)
        self._add(count, mean, squared_deviations, (~defined).sum(dim=0).double())

    def merge(self, other: Self) -> None:
        require_same_settings(self.settings, other.settings)
        self._add(other.count, other.mean, other.squared_deviations, other.skipped)

    def _add(self, count: Tensor, mean: Tensor, deviations: Tensor, skipped: Tensor) -> None:
        """Chan's update: exact for any split, and stable if the mean is large relative to the variance."""
        total = (self.count + count).clamp(min=1)
        shift = mean - self.mean
        self.squared_deviations = self.squared_deviations + deviations + shift**2 * self.count * count / total
        self.mean = torch.where(count > 0, self.mean + shift * count / total, self.mean)
        self.count = self.count + count
        self.skipped = self.skipped + skipped

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "running_mean", "width": self.width}

    @property
    def nbytes(self) -> int:
        return self.bytes_for(0)

    def bytes_for(self, n: int) -> int:
        return 4 * 8 * self.width

    def to_state(self) -> State:
        tensors = {
            "count": self.count,
            "mean": self.mean,
            "deviations": self.squared_deviations,
            "skipped": self.skipped,
        }
        return State(self.settings, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        accumulator = cls(int(state.settings["width"]))
        accumulator.count, accumulator.mean = state.tensors["count"], state.tensors["mean"]
        accumulator.squared_deviations, accumulator.skipped = state.tensors["deviations"], state.tensors["skipped"]
        return accumulator

"""Class scatter: the spread of views within a prompt, and between prompts."""

from dataclasses import dataclass, field
from typing import Any, Self

from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.base import State, require_same_settings, to_cpu_float64
from layerwise.metrics.accumulators.second_moment import SecondMoment


@dataclass
class ClassScatter:
    """Second moments of the class means (between) and of the views around their own mean (within)."""

    width: int
    views: int
    precision: str = "float64"
    between: SecondMoment = field(init=False)
    within: SecondMoment = field(init=False)

    def __post_init__(self) -> None:
        self.between, self.within = (SecondMoment(self.width, self.precision) for _ in range(2))

    def update(self, rows: Tensor) -> None:
        """rows (B, V, D): all V views of each prompt; a prompt with NaN in any view is counted as skipped."""
        if rows.shape[1:] != (self.views, self.width):
            expected = f"(B, {self.views}, {self.width})"
            raise InputError(f"expected {expected}, got {tuple(rows.shape)}; pass all views of a prompt together")
        rows = to_cpu_float64(rows)
        defined = ~rows.isnan().any(dim=-1).any(dim=-1)
        self.between.skipped += int((~defined).sum())
        rows = rows[defined]
        means = rows.mean(dim=1, keepdim=True)
        self.between.update(means.squeeze(1))
        self.within.update((rows - means).reshape(-1, self.width))

    def merge(self, other: Self) -> None:
        require_same_settings(self.settings, other.settings)
        self.between.merge(other.between)
        self.within.merge(other.within)

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "class_scatter", "width": self.width, "views": self.views, "precision": self.precision}

    @property
    def nbytes(self) -> int:
        return self.between.nbytes + self.within.nbytes

    def bytes_for(self, n: int) -> int:
        return self.between.bytes_for(n) + self.within.bytes_for(n * self.views)

    def fold_buffer(self) -> None:
        self.between.fold_buffer()
        self.within.fold_buffer()

    def to_state(self) -> State:
        parts = {"between": self.between.to_state(), "within": self.within.to_state()}
        tensors = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.tensors.items()}
        return State(self.settings, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        scatter = cls(int(state.settings["width"]), int(state.settings["views"]), state.settings["precision"])
        settings = {"width": scatter.width, "precision": scatter.precision}
        for name in ("between", "within"):
            tensors = {k.removeprefix(f"{name}."): v for k, v in state.tensors.items() if k.startswith(f"{name}.")}
            setattr(scatter, name, SecondMoment.from_state(State(settings, tensors)))
        return scatter

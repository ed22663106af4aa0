"""Views and stress: which of them a plan requests from a processor, their kinds and scales, and how views are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from layerwise.core.checks import require_choice
from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH, Perturbation, Scale, perturb
from layerwise.inputs.perturbations.tokens import TOKEN_STRESS

STRESS_SCALES: Mapping[str, Scale] = {name: kind.scale for name, kind in TOKEN_STRESS.items()}


@dataclass(frozen=True)
class Stress:
    """A kind of stress and its level (a fraction, or a length in tokens)."""

    kind: str
    level: float

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, STRESS_SCALES)
        is_share = STRESS_SCALES[self.kind].unit == "share"
        if is_share and not 0 <= self.level <= 1:
            raise InputError(f"the level of {self.kind} must be a fraction from 0 to 1, not {self.level}")
        if not is_share and (self.level < 2 or self.level != int(self.level)):
            raise InputError(f"the level of {self.kind} must be a length of at least 2 tokens, not {self.level}")


T = TypeVar("T")


@dataclass(frozen=True)
class ViewPlan:
    """The number and strength of perturbed views per example, or a kind of stress."""

    views: int = 0
    strength: float = DEFAULT_STRENGTH
    seed: int = 0
    stress: Stress | None = None


NO_VIEWS = ViewPlan()


def with_views(payload: T, perturbation: Perturbation[T], view_plan: ViewPlan, example_id: str) -> tuple[T, ...]:
    """The original, followed by its perturbed copies; a view does not depend on the number of views."""
    copies = (
        perturb(payload, perturbation, view_plan.strength, seed=view_plan.seed, example_id=example_id, name=number)
        for number in range(1, view_plan.views + 1)
    )
    return (payload, *copies)

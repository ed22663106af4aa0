"""Which views or stress a plan requests from a processor, and how views are made."""

from dataclasses import dataclass
from typing import TypeVar

from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH, Perturbation, perturb
from layerwise.inputs.perturbations.stress import Stress

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

"""Which views or stress a plan requests from a processor, and how views are made."""

from dataclasses import dataclass
from typing import TypeVar

from layerwise.inputs.perturbations.base import Perturbation, perturbed
from layerwise.inputs.perturbations.stress import Stress
from layerwise.options.views import STRENGTH

T = TypeVar("T")


@dataclass(frozen=True)
class Changes:
    """The number and strength of perturbed views per example, or a kind of stress."""

    views: int = 0
    strength: float = STRENGTH
    seed: int = 0
    stress: Stress | None = None


UNCHANGED = Changes()


def with_views(payload: T, change: Perturbation[T], changes: Changes, example_id: str) -> tuple[T, ...]:
    """The original, followed by its perturbed copies; a view does not depend on the number of views."""
    copies = (
        perturbed(payload, change, changes.strength, seed=changes.seed, example_id=example_id, name=number)
        for number in range(1, changes.views + 1)
    )
    return (payload, *copies)

"""Changes: what a plan asks a processor for beside the originals, and the views that come of it."""

from dataclasses import dataclass
from typing import TypeVar

from layerwise.inputs.perturbations.base import Perturbation, perturbed
from layerwise.inputs.perturbations.stress import Stress
from layerwise.options.views import STRENGTH

T = TypeVar("T")


@dataclass(frozen=True)
class Changes:
    """So many perturbed views of each example, and how strong they are; or a kind of stress."""

    views: int = 0
    strength: float = STRENGTH
    seed: int = 0
    stress: Stress | None = None


UNCHANGED = Changes()


def with_views(payload: T, change: Perturbation[T], changes: Changes, example_id: str) -> tuple[T, ...]:
    """The original, and the perturbed copies behind it; a view does not depend on how many others there are."""
    copies = (
        perturbed(payload, change, changes.strength, seed=changes.seed, example_id=example_id, name=number)
        for number in range(1, changes.views + 1)
    )
    return (payload, *copies)

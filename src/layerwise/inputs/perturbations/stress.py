"""Stress inputs: the kinds and their scales."""

from collections.abc import Mapping
from dataclasses import dataclass

from layerwise.core.checks import require_choice
from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.base import Scale
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

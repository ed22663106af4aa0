"""views: the perturbed copies of a text."""

from dataclasses import dataclass
from typing import Annotated

from layerwise.core.checks import require_count, require_fraction
from layerwise.options.field import Option, require_valid
from layerwise.options.reading import Seed

DEFAULT_STRENGTH = 0.3  # of the views in a scan


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of `views`."""

    count: Annotated[int, Option("number of copies", require_count)] = 4
    strength: Annotated[float, Option("fraction of words and letters that change", require_fraction)] = DEFAULT_STRENGTH
    seed: Seed = 0

    def __post_init__(self) -> None:
        require_valid(self)

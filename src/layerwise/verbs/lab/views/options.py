"""views: the perturbed copies of a text."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated

from layerwise.core.checks import require_count, require_fraction
from layerwise.core.options import Option, require_valid
from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH
from layerwise.models.spec import Seed

MOST_COPIES = 10_000  # more could only be a mistake: they are made to be looked at


@dataclass(frozen=True)
class ViewOptions:
    """The options of `views`."""

    text: Annotated[str, Option("the text to perturb", library_only=True)]
    _: KW_ONLY
    count: Annotated[int, Option("number of copies", partial(require_count, maximum=MOST_COPIES))] = 4
    strength: Annotated[float, Option("fraction of words and letters that change", require_fraction)] = DEFAULT_STRENGTH
    seed: Seed = 0

    def __post_init__(self) -> None:
        require_valid(self)

"""views: the perturbed copies of a text that invariance metrics compare."""

from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH
from layerwise.inputs.perturbations.text import make_view
from layerwise.verbs.lab.views.options import ViewOptions


def views(text: str, *, count: int = 4, strength: float = DEFAULT_STRENGTH, seed: int = 0) -> list[str]:
    """Perturbed copies of a text, as `infonce`, `dime` and `lidar` compare them.

    Args:
        text: the text to perturb.
        count: how many copies to make.
        strength: share of words and letters that change, from 0 to 1.
        seed: seed of the changes; the same seed gives the same copies.

    Returns:
        The copies, in order: a scan uses the first ones as views 1, 2, and so on.

    Raises:
        InputError: `count` or `strength` is out of range.

    Example:
        >>> copies = layerwise.lab.views("The quick brown fox jumps over the lazy dog.", count=2)
        >>> len(copies)
        2
    """
    ViewOptions(count=count, strength=strength, seed=seed)
    return [make_view(text, seed, text, number, strength) for number in range(1, count + 1)]

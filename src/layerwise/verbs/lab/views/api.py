"""views: the perturbed copies of a text that invariance metrics compare."""

from layerwise.core.options import takes
from layerwise.inputs.perturbations.text import make_view
from layerwise.verbs.lab.views.options import ViewOptions


@takes(ViewOptions)
def views(options: ViewOptions) -> list[str]:
    """Perturbed copies of a text, as `infonce`, `dime` and `lidar` compare them.

    Returns:
        The copies, in order: a scan uses the first ones as views 1, 2, and so on.

    Raises:
        InputError: `count` or `strength` is out of range.

    Example:
        >>> copies = layerwise.lab.views("The quick brown fox jumps over the lazy dog.", count=2)
        >>> len(copies)
        2
    """
    text, numbers = options.text, range(1, options.count + 1)
    return [make_view(text, options.seed, text, number, options.strength) for number in numbers]

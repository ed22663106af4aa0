"""How exactly sums over a data set are stored, for cases where exact sums would be too large."""

from collections.abc import Iterator

from layerwise.core.checks import require_state
from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.base import Accumulator
from layerwise.metrics.accumulators.class_scatter import ClassScatter
from layerwise.metrics.accumulators.frequent_directions import FrequentDirections
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.readings import Reading

MAX_STATE_BYTES = 8 * 10**9  # limit of `auto` for all layers together


def sketch_size(state: str) -> int:
    """512 for `sketch:512`, 0 for `exact` and `float32`; raises for anything else."""
    return int(require_state(state).partition(":")[2] or 0)


def make_accumulator(reading: Reading, width: int, state: str) -> Accumulator:
    """The accumulator of a reading: exact, or a smaller approximate one."""
    exact = reading.make_accumulator(width)
    if state == "exact" or not isinstance(exact, SecondMoment | ClassScatter):
        return exact
    if size := sketch_size(state):
        if isinstance(exact, ClassScatter):
            raise InputError("lidar needs all directions, but a sketch keeps only a few; use --state float32")
        return FrequentDirections(width, size)
    if isinstance(exact, ClassScatter):
        return ClassScatter(width, exact.views, "float32")
    return SecondMoment(width, "float32")


def state_options(width: int) -> Iterator[str]:
    """State options, from the most exact to the smallest."""
    yield from ("exact", "float32")
    yield from (f"sketch:{max(1, width // part)}" for part in (8, 16, 32))

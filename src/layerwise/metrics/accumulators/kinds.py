"""All accumulators by name, to restore one from a stored state."""

from layerwise.metrics.accumulators.base import Accumulator, State
from layerwise.metrics.accumulators.class_scatter import ClassScatter
from layerwise.metrics.accumulators.frequent_directions import FrequentDirections
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.accumulators.running_mean import RunningMean
from layerwise.metrics.accumulators.second_moment import SecondMoment


def accumulator_from_state(state: State) -> Accumulator:
    """Restores the accumulator from its state."""
    match state.settings["kind"]:
        case "running_mean":
            return RunningMean.from_state(state)
        case "second_moment":
            return SecondMoment.from_state(state)
        case "class_scatter":
            return ClassScatter.from_state(state)
        case "frequent_directions":
            return FrequentDirections.from_state(state)
        case _:
            return RowSample.from_state(state)

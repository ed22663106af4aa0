"""Dataset entropy: how many directions the prompts of a data set spread over."""

from layerwise.metrics.base import Metric
from layerwise.metrics.intervals import uneven_rows
from layerwise.metrics.leave_one_out import entropy_without, exact_spread
from layerwise.metrics.readings import pooled_rows
from layerwise.metrics.scores import of_spectrum
from layerwise.ops.spectrum import renyi_entropy

METRIC = Metric(
    name="dataset_entropy",
    perspective="information",
    larger_means="prompts are more distinct from each other",
    unit="nats",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=of_spectrum(renyi_entropy),
    spread=exact_spread(renyi_entropy, entropy_without, uneven_rows),
    cite="Skean et al. 2025, sec. 3.2",
)

"""Dataset entropy: how many directions the prompts of a data set spread over."""

from layerwise.metrics.base import Metric
from layerwise.metrics.intervals import uneven_rows_warning
from layerwise.metrics.leave_one_out import entropy_leave_one_out, exact_interval
from layerwise.metrics.ops.spectrum import renyi_entropy
from layerwise.metrics.readings import pooled_rows
from layerwise.metrics.scores import spectrum_score

METRIC = Metric(
    name="dataset_entropy",
    perspective="information",
    larger_means="prompts are more distinct from each other",
    unit="nats",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=spectrum_score(renyi_entropy),
    interval_source=exact_interval(renyi_entropy, entropy_leave_one_out, uneven_rows_warning),
    cite="Skean et al. 2025, sec. 3.2",
)

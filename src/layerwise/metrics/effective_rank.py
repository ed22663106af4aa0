"""Effective rank: how many dimensions the prompts of a data set use."""

from layerwise.metrics.base import Metric
from layerwise.metrics.leave_one_out import exact_interval, rank_leave_one_out
from layerwise.metrics.ops.spectrum import effective_rank_of_spectrum
from layerwise.metrics.readings import pooled_rows
from layerwise.metrics.scores import spectrum_score

METRIC = Metric(
    name="effective_rank",
    perspective="information",
    larger_means="more dimensions in use",
    unit="dimensions",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=spectrum_score(effective_rank_of_spectrum),
    interval_source=exact_interval(effective_rank_of_spectrum, rank_leave_one_out),
    cite="Roy & Vetterli 2007; Garrido et al. 2023 (RankMe)",
)

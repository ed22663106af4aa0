"""Effective rank: how many dimensions the prompts of a data set use."""

from layerwise.metrics.base import Metric
from layerwise.metrics.leave_one_out import exact_spread, rank_without
from layerwise.metrics.readings import pooled_rows
from layerwise.metrics.scores import of_spectrum
from layerwise.ops.spectrum import rank_of_spectrum

METRIC = Metric(
    name="effective_rank",
    perspective="information",
    larger_means="more dimensions in use",
    unit="dimensions",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=pooled_rows,
    score=of_spectrum(rank_of_spectrum),
    spread=exact_spread(rank_of_spectrum, rank_without),
    cite="Roy & Vetterli 2007; Garrido et al. 2023 (RankMe)",
)

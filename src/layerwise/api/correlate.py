"""correlate: which metrics go with which scores."""

from typing import Any

import pandas as pd

from layerwise.core.checks import NormWord
from layerwise.downstream.correlate import correlations
from layerwise.options.correlate import CorrelateOptions
from layerwise.runs.folder import Run


def correlate(scan_table: Any, eval_table: Any, *, norm: NormWord = "raw") -> pd.DataFrame:
    """Which metrics go with which task scores over the layers: Spearman, Kendall and distance correlation.

    They describe; the p-values are of where the curves bend. See `layerwise.downstream.correlate.correlations`.
    """
    options = CorrelateOptions(norm=norm)
    return correlations(Run.open(scan_table).table, Run.open(eval_table).table, norm=options.norm)

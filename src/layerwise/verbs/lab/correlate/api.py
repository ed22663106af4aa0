"""correlate: how metrics and scores correlate over the layers."""

from pathlib import Path

import pandas as pd

from layerwise.core.checks import NormChoice
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.verbs.lab.correlate.options import CorrelateOptions
from layerwise.verbs.report.correlations import correlate_runs


def correlate(
    scan: Run | LayerTable | str | Path, eval: Run | LayerTable | str | Path, *, norm: NormChoice = "raw"
) -> pd.DataFrame:
    """Correlates the metrics of a scan with the task scores of an eval, over the layers of one model.

    The correlations describe two curves. Curves that both rise with depth correlate whether or not they are related,
    so the correlations have no p-value. The columns `*_bends` correlate where the curves bend, and `*_bends_p` is the
    p-value of that.

    Args:
        scan: The run folder, url or LayerTable of a scan.
        eval: The run folder, url or LayerTable of an eval of the same model.
        norm: `raw` or `normed`: which hidden states to compare.

    Returns:
        One row per pair of a metric and a task, with the columns metric, rows, tokens, pooling, task, task_pooling,
        transform, layers, and spearman, kendall and distance with their bends.

    Raises:
        InputError: The runs are of different models or kinds, or share fewer than four layers.

    Example:
        >>> table = layerwise.scan(model, texts, metrics="curvature")
        >>> layerwise.lab.correlate(table, table)
        Traceback (most recent call last):
        ...
        layerwise.core.errors.InputError: expected a scan and then an eval, got scan and scan
    """
    options = CorrelateOptions(norm=norm)
    return correlate_runs(scan, eval, norm=options.norm)

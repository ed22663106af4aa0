"""correlate: how metrics and scores correlate over the layers."""

import pandas as pd

from layerwise.core.options import takes
from layerwise.verbs.lab.correlate.options import CorrelateOptions
from layerwise.verbs.report.correlations import correlate_runs


@takes(CorrelateOptions)
def correlate(options: CorrelateOptions) -> pd.DataFrame:
    """Correlates the metrics of a scan with the task scores of an eval, over the layers of one model.

    The correlations describe two curves. Curves that both rise with depth correlate whether or not they are related,
    so the correlations have no p-value. The columns `*_bends` correlate where the curves bend, and `*_bends_p` is the
    p-value of that.

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
    return correlate_runs(options.scan, options.eval, norm=options.norm)

"""`scan --metrics list`: the metrics and what they mean."""

import json
from textwrap import wrap

from layerwise.core.columns import WIDTH
from layerwise.metrics.catalog import CATALOG


def metric_list(*, as_json: bool) -> str:
    """A line or two per metric, or all that is known of them as JSON."""
    metrics = [
        {
            "name": m.name,
            "perspective": m.perspective,
            "larger_means": m.larger_means,
            "unit": m.unit,
            "rows": list(m.rows),
            "views": max(m.reading(rows).views for rows in m.rows),
            "cite": m.cite,
        }
        for m in CATALOG
    ]
    if as_json:
        return json.dumps(metrics)
    lines = []
    for metric in metrics:
        views = f"; needs {metric['views']} views" if metric["views"] else ""
        meaning = f"{metric['perspective']}: larger means: {metric['larger_means']}{views}"
        lines += wrap(meaning, WIDTH, initial_indent=f"{metric['name']:27}", subsequent_indent=" " * 27)
    return "\n".join(lines)

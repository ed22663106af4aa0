"""`layerwise metrics`: list the metrics and what they mean."""

import json
from argparse import ArgumentParser, Namespace
from textwrap import wrap

from layerwise.cli.shared import add_json
from layerwise.core.columns import WIDTH

HELP = "list the metrics and what they mean"
EXAMPLE = "layerwise metrics"


def add_arguments(parser: ArgumentParser) -> None:
    add_json(parser, "the list")


def run(args: Namespace) -> int:
    from layerwise.metrics.catalog import CATALOG

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
    if args.json:
        print(json.dumps(metrics))
        return 0
    for metric in metrics:
        views = f"; needs {metric['views']} views" if metric["views"] else ""
        meaning = f"{metric['perspective']}: larger means: {metric['larger_means']}{views}"
        print("\n".join(wrap(meaning, WIDTH, initial_indent=f"{metric['name']:27}", subsequent_indent=" " * 27)))
    return 0

"""`layerwise lab correlate`: how metrics and task scores correlate over the layers of one model."""

import textwrap
from argparse import ArgumentParser, Namespace
from typing import Any

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json
from layerwise.core.columns import WIDTH, in_columns
from layerwise.verbs.lab.correlate.options import CorrelateOptions

HELP = "how the metrics of a scan correlate with the scores of an eval, over the layers"
SETTING = ("rows", "tokens", "pooling", "task_pooling", "transform")
NUMBERS = {"spearman": "spearman", "kendall": "kendall", "distance": "distance", "spearman_bends_p": "bends p"}
NOTE = "bends p: p-value that both curves bend at the same layers; --json: all numbers"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scan", help="run folder of `layerwise scan`")
    parser.add_argument("eval", help="run folder of `layerwise eval`")
    add_options(parser, CorrelateOptions)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.verbs.lab.correlate.api import correlate

    table = correlate(args.scan, args.eval, **option_values(args, CorrelateOptions))
    print(table.to_json(orient="records") if args.json else "\n".join(lines_of(table)))
    return 0


def lines_of(table: Any) -> list[str]:
    """The table within 80 columns: settings only where they differ, and the three correlations."""
    differing = [name for name in SETTING if table[name].nunique() > 1]
    words = ["metric", "task", *differing]
    rows = [[*words, *NUMBERS.values()]]
    for row in table.to_dict(orient="records"):
        numbers = ["" if row[name] != row[name] else f"{row[name]:.2f}" for name in NUMBERS]
        rows.append([*(str(row[name]) for name in words), *numbers])
    same = [f"{name} {table[name].iloc[0]}" for name in SETTING if name not in differing]
    layers = sorted({int(count) for count in table.layers})
    about = f"{' to '.join(map(str, {layers[0]: 0, layers[-1]: 0}))} layers; {', '.join(same)}"
    return [*textwrap.wrap(about, WIDTH), *in_columns(rows, label_columns=len(words)), NOTE]

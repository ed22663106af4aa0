"""`layerwise audit`: rules for choosing a layer, tested on known scores."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from layerwise.cli.flags import add_options
from layerwise.cli.shared import add_json
from layerwise.options.audit import AuditOptions

if TYPE_CHECKING:
    import pandas as pd

HELP = "test rules for choosing a layer on known scores: gap recovered, losses, intervals"
NOTES = (
    "gain: points over the last layer; recovered: share of the gap to the best layer,",
    "interval by drawing tasks; below last: share of pairs; worst: largest loss.",
    "The best of many rules looks good by luck. --json prints all columns.",
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scores", help="table (.parquet, .csv) with family, model, task, layer, score")
    add_options(parser, AuditOptions)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.api.audit import audit
    from layerwise.inputs.tables import read_table

    tables = [read_table(path) if path else None for path in (args.scores, args.metrics)]
    frame = audit(*tables, rules=args.rules)
    print(frame.to_json(orient="records") if args.json else as_text(frame))
    return 0


def as_text(frame: "pd.DataFrame") -> str:
    """The columns that matter most, within 80 columns for rules with short names."""
    rows = [["rule", "family", "pairs", "gain", "recovered (95 %)", "below last", "worst"]]
    for row in frame.itertuples(index=False):
        drawn = row.low_tasks == row.low_tasks  # a single task has no interval
        interval = f" ({100 * row.low_tasks:.0f} to {100 * row.high_tasks:.0f})" if drawn else ""
        share = "-" if row.recovered != row.recovered else f"{100 * row.recovered:.0f} %{interval}"
        gain, below = f"{row.chosen - row.last:+.1f}", f"{100 * row.below_last:.0f} %"
        rows.append([row.rule, row.family, str(row.pairs), gain, share, below, f"{row.worst_loss:.1f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([*lines, *NOTES])

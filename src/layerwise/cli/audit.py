"""`layerwise audit`: rules for choosing a layer, judged on scores that are known."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options
from layerwise.cli.shared import add_json
from layerwise.options.audit import AuditOptions

HELP = "judge rules for choosing a layer on known scores: gap recovered, losses, intervals"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scores", help="table (.parquet, .csv) with family, model, task, layer, score")
    add_options(parser, AuditOptions)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.api.audit import audit
    from layerwise.inputs.tables import read_table

    tables = [read_table(path) if path else None for path in (args.scores, args.metrics)]
    frame = audit(*tables, rules=args.rules)
    print(frame.to_json(orient="records") if args.json else frame.round(3).to_string(index=False))
    return 0

"""`layerwise audit`: rules for choosing a layer, judged on scores that are known."""

from argparse import ArgumentParser, Namespace

HELP = "judge rules for choosing a layer on known scores: gap recovered, losses, intervals"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scores", help="table (.parquet, .csv) with family, model, task, layer, score")
    parser.add_argument("--metrics", help="table with model, task, layer, metric, value; task may be empty")
    parser.add_argument("--rules", default="last,second_to_last,depth:80%", help="rules with commas, as for pick")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.audit import audit
    from layerwise.inputs.tables import read_table

    tables = [read_table(path) if path else None for path in (args.scores, args.metrics)]
    frame = audit(*tables, rules=args.rules)
    print(frame.to_json(orient="records") if args.json else frame.round(3).to_string(index=False))
    return 0

"""`layerwise tradeoff`: what each layer gives and costs, with the layers marked that no other beats at both."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json, short_warnings
from layerwise.options.tradeoff import TradeoffOptions

HELP = "what each layer of a run scores and costs: time, parameters, memory; the Pareto front marked"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="folder of an eval (or scan) run")
    add_options(parser, TradeoffOptions)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.api.tradeoff import tradeoff

    with short_warnings():
        frame = tradeoff(args.run_folder, **chosen(args, TradeoffOptions))
    if args.json:
        print(frame.to_json(orient="records"))
        return 0
    shown = frame.assign(
        depth=(100 * frame.depth).round().astype(int).astype(str) + "%",
        score=frame.score.round(2),
        parameters=(frame.parameters / 1e6).round(1).astype(str) + "M",
        bytes=(frame.bytes / 1e6).round().astype(int).astype(str) + "MB",
    )
    if "pareto" in frame:
        shown["pareto"] = frame.pareto.map({True: "*", False: ""})
    else:
        message = f"{args.score} is a metric of a scan, which has no better end: no layer is marked as the best trade"
        print(message, file=sys.stderr)
    print(shown.rename(columns={"bytes": "memory"}).to_string(index=False))
    return 0

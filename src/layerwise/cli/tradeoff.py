"""`layerwise tradeoff`: what each layer gives and costs, with the layers marked that no other beats at both."""

import sys
from argparse import ArgumentParser, Namespace

HELP = "what each layer of a run scores and costs: time, parameters, memory; the Pareto front marked"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="folder of an eval (or scan) run")
    parser.add_argument("--score", default="mean", help="a task or metric of the run; default: mean over all tasks")
    parser.add_argument("--model", help="the model to time, where the run's own name no longer leads to it")
    parser.add_argument("--mode", default="portable", choices=["portable", "compact"], help="as for export")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.tradeoff import tradeoff

    frame = tradeoff(args.run_folder, args.score, model=args.model, mode=args.mode)
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
        told = f"{args.score} is a metric of a scan, which has no better end: no layer is marked as the best trade"
        print(told, file=sys.stderr)
    print(shown.rename(columns={"bytes": "memory"}).to_string(index=False))
    return 0

"""`layerwise scan`: compute all metrics of all layers on your texts, in one pass."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import (
    add_json,
    add_model,
    close_scan,
    engine_from_args,
    model_spec,
    next_steps,
    open_data,
    require_model_name,
    scanned_data,
)
from layerwise.engines.options import Cluster, Vllm
from layerwise.inputs.options import TextOptions
from layerwise.verbs.scan.options import SETTINGS, ScanOptions

DOOR, LINE = "look", "measure every layer on your texts, in one pass"
HELP = "measure every layer of a model on your texts, in one pass"
EXAMPLE = "layerwise scan gpt2 --data texts.txt --out run"
MAIN = "data limit metrics layers pooling tokens max_length dtype device engine out dry_run json".split()


def add_arguments(parser: ArgumentParser) -> None:
    add_options(parser, ScanOptions)
    parser.add_argument("--dry-run", action="store_true", help="report memory and time, and stop")
    add_json(parser)
    add_options(parser, TextOptions, defaults={"data": "demo"})
    add_model(parser, nargs="?", sources=["states", "stream"])  # the list of metrics needs none
    add_options(parser, Cluster)
    add_options(parser, Vllm)


def run(args: Namespace) -> int:
    if args.metrics == "list":
        from layerwise.verbs.scan.metric_list import metric_list

        print(metric_list(as_json=args.json))
        return 0
    require_model_name(args)
    engine = engine_from_args(args)
    from layerwise.core.progress import announcements
    from layerwise.verbs.scan.api import plan, scan, timed_plan

    model, data = model_spec(args), open_data(args)
    options = option_values(args, ScanOptions)
    if args.dry_run:
        forecast = plan(model, data, **{name: options[name] for name in SETTINGS})
        print("\n".join(forecast.lines()))
        forecast.require_fit()
        with announcements(True):
            print(timed_plan(ScanOptions(model, data, **options)).line())
        return 0
    table = scan(model, data, **options | {"engine": engine}, progress=True)
    print(table.to_json() if args.json else table)
    close_scan(table, args.out)
    if args.out:
        takes_texts = all(facts.get("unit", "text") == "text" for facts in scanned_data(table))
        next_steps(
            ["layerwise", "report", args.out, "--html", "report.html"],
            *([["layerwise", "pick", args.model, "--save", args.out]] if takes_texts else []),
        )
    return 0

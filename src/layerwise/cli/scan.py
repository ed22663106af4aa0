"""`layerwise scan`: every metric of every layer of a model, on your texts, in one pass."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json, add_model, engine_of, model_spec, open_data
from layerwise.core.display import redacted
from layerwise.options.engine import Cluster
from layerwise.options.scan import SETTINGS, ScanOptions
from layerwise.options.texts import TextOptions

HELP = "every metric of every layer, on your texts, in one pass"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, TextOptions, defaults={"data": "demo"})
    add_options(parser, ScanOptions)
    add_options(parser, Cluster)
    parser.add_argument("--dry-run", action="store_true", help="report what it would take, and load nothing")
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.api.scan import plan, scan

    model, data = model_spec(args), open_data(args)
    options = chosen(args, ScanOptions)
    if args.dry_run:
        forecast = plan(model, data, **{name: options[name] for name in SETTINGS})
        print("\n".join(forecast.lines()))
        forecast.require_fit()
        return 0
    table = scan(model, data, **options | {"engine": engine_of(args)}, progress=True)
    print(table.to_json() if args.json else table)
    facts = table.run["data"]
    if facts["cut"]:
        print(f"{facts['cut']} of {facts['prompts']} texts were cut at --max-length", file=sys.stderr)
    if facts["blank_rows"]:
        print(f"{facts['blank_rows']} blank rows of the data were passed over", file=sys.stderr)
    if facts["missing"]:
        print(f"{len(facts['missing'])} texts could not be computed and are left out", file=sys.stderr)
    if args.out:
        print(f"saved in {redacted(args.out)}", file=sys.stderr)
    return 0

"""`layerwise stress`: every layer on prompts made more and more extreme."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json, add_model, engine_of, model_spec, open_data
from layerwise.core.display import redacted
from layerwise.options.engine import Cluster
from layerwise.options.stress import StressOptions
from layerwise.options.texts import TextOptions

HELP = "every layer on repeated, random, short and long prompts"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, TextOptions, defaults={"data": "demo"})
    add_options(parser, StressOptions)
    add_options(parser, Cluster)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.api.stress import stress

    options = chosen(args, StressOptions) | {"engine": engine_of(args)}
    table = stress(model_spec(args), open_data(args), **options, progress=True)
    print(table.to_json() if args.json else table)
    if args.out:
        print(f"saved in {redacted(args.out)}", file=sys.stderr)
    return 0

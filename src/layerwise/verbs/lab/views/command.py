"""`layerwise lab views`: show the perturbed copies of a text."""

import json
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json
from layerwise.verbs.lab.views.options import ViewOptions

HELP = "show the perturbed copies of a text, as used by the invariance metrics"
EXAMPLE = 'layerwise lab views "The quick brown fox" --count 2'


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("text")
    add_options(parser, ViewOptions)
    add_json(parser, "the copies")


def run(args: Namespace) -> int:
    from layerwise.verbs.lab.views.api import views

    copies = views(args.text, **option_values(args, ViewOptions))
    print(json.dumps(copies, ensure_ascii=False) if args.json else "\n".join(copies))
    return 0

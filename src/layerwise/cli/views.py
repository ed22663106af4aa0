"""`layerwise views`: what the perturbed copies of a text look like."""

import json
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json
from layerwise.options.views import ViewOptions

HELP = "show the perturbed copies of a text that invariance metrics compare"
EXAMPLE = 'layerwise views "The quick brown fox" --count 2'


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("text")
    add_options(parser, ViewOptions)
    add_json(parser, "them")


def run(args: Namespace) -> int:
    from layerwise.inputs.perturbations.text import make_view

    options = ViewOptions(**chosen(args, ViewOptions))
    numbers = range(1, options.count + 1)
    views = [make_view(args.text, options.seed, args.text, number, options.strength) for number in numbers]
    print(json.dumps(views, ensure_ascii=False) if args.json else "\n".join(views))
    return 0

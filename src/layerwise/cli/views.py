"""`layerwise views`: what the perturbed copies of a text look like."""

import json
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json
from layerwise.options.views import ViewOptions

HELP = "show the perturbed copies of a text that invariance metrics compare"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("text")
    add_options(parser, ViewOptions)
    add_json(parser, "them")


def run(args: Namespace) -> int:
    from layerwise.inputs.perturbations.text import make_view

    asked = ViewOptions(**chosen(args, ViewOptions))
    numbers = range(1, asked.count + 1)
    made = [make_view(args.text, asked.seed, args.text, number, asked.strength) for number in numbers]
    print(json.dumps(made, ensure_ascii=False) if args.json else "\n".join(made))
    return 0

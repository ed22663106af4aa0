"""`layerwise views`: what the perturbed copies of a text look like."""

import json
from argparse import ArgumentParser, Namespace

from layerwise.inputs.perturbations.base import STRENGTH
from layerwise.inputs.perturbations.text import make_view

HELP = "show the perturbed copies of a text that invariance metrics compare"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("text")
    parser.add_argument("--count", type=int, default=4, help="how many (default: 4)")
    parser.add_argument("--strength", type=float, default=STRENGTH, help=f"share of words and letters ({STRENGTH})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(args: Namespace) -> int:
    from layerwise.core.checks import require_options

    require_options(count=args.count, strength=args.strength)
    made = [make_view(args.text, args.seed, args.text, number, args.strength) for number in range(1, args.count + 1)]
    print(json.dumps(made, ensure_ascii=False) if args.json else "\n".join(made))
    return 0

"""`layerwise compare`: what differs between runs, layer by layer, as a plain-text summary; --html adds pictures."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, say
from layerwise.verbs.compare.options import CompareOptions

DOOR, LINE = "look", "what differs between runs: fine-tunes, sizes, checkpoints"
HELP = "compare runs: fine-tunes, model sizes, checkpoints, architectures"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two or more run folders of scan or eval")
    add_options(parser, CompareOptions)
    add_json(parser, "all differences")


def run(args: Namespace) -> int:
    from layerwise.verbs.compare.api import compare

    comparison = compare(args.runs, **option_values(args, CompareOptions))
    print(comparison.to_json() if args.json else comparison)
    if args.html:
        say(f"wrote {args.html}; open it in a browser")
    return 0

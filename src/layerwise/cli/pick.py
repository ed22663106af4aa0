"""`layerwise pick`: which layer or recipe to use, how sure that is, and what it saves."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json
from layerwise.options.pick import PickOptions
from layerwise.options.texts import TextOptions

HELP = "which layer or recipe to use, and how sure that is; it may recommend keeping the last layer"
OWN_TEXTS = "texts of your own kind, without labels: the model runs over up to 1000 of them"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="folder of a scan or eval run, or a model")
    add_options(parser, TextOptions, only=["data", "column"], defaults={"data": None}, helps={"data": OWN_TEXTS})
    add_options(parser, PickOptions)
    parser.add_argument(
        "--save", help="folder for pick.json and recipe.safetensors, which `export --layer FOLDER:auto` takes"
    )
    add_json(parser, "the answer")


def run(args: Namespace) -> int:
    from layerwise.api.pick import pick
    from layerwise.api.texts import texts
    from layerwise.selection.pick import require_place

    if args.save is not None:
        require_place(args.save)  # noticed now, not after the model has run
    data = texts(args.data, column=args.column) if args.data else None
    if (args.data or args.labels) and not args.rule:
        print("the model runs once over up to 1,000 texts of yours and 288 bundled sentences", file=sys.stderr)
    found = pick(args.run_folder, data, **chosen(args, PickOptions))
    if args.save is not None:
        found.save(args.save)
    print(found.to_json() if args.json else found)
    return 0

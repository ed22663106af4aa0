"""`layerwise embedder`: from any language model to an embedding model, without labels: pick, then export."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options
from layerwise.cli.shared import add_model, model_spec
from layerwise.options.export import ExportOptions
from layerwise.options.pick import PickOptions
from layerwise.options.texts import TextOptions

HELP = "pick a recipe on your unlabelled texts and export it: any language model as an embedding model"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, TextOptions, only=["data", "column"], helps={"data": "texts of your own kind, without labels"})
    add_options(parser, PickOptions, only=["labels", "static", "max_length"])
    add_options(parser, ExportOptions, only=["mode"])
    parser.add_argument("--out", required=True, help="folder to write; must not exist")


def run(args: Namespace) -> int:
    from layerwise.api.export import export
    from layerwise.api.pick import pick
    from layerwise.api.texts import texts
    from layerwise.exporter.folder import require_new
    from layerwise.models.opening import open_network

    data = texts(args.data, column=args.column)
    require_new(args.out)
    network = open_network(model_spec(args))
    found = pick(network, data, labels=args.labels, static=args.static, max_length=args.max_length)
    print(found.describe())
    export(network, found, args.out, mode=args.mode)
    print(f"saved in {args.out}: SentenceTransformer({args.out!r}) loads it", file=sys.stderr)
    return 0

"""`layerwise embedder`: from any language model to an embedding model, without labels: pick, then export."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_model, add_no_static, model_spec

HELP = "pick a recipe on your unlabelled texts and export it: any language model as an embedding model"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--data", required=True, help="texts of your own kind, without labels")
    parser.add_argument("--column", default="text", help="column of --data that holds the text")
    parser.add_argument("--labels", help="a few labels, as for pick")
    add_no_static(parser)
    parser.add_argument("--out", required=True, help="folder to write; must not exist")
    parser.add_argument("--mode", default="portable", choices=["portable", "compact"], help="as for export")
    parser.add_argument("--max-length", type=int, help="longest input in tokens; default 512 or the model's limit")


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
    print(found)
    export(network, found, args.out, mode=args.mode)
    print(f"saved in {args.out}: SentenceTransformer({args.out!r}) loads it", file=sys.stderr)
    return 0

"""`layerwise export`: a layer as a smaller model that plain sentence-transformers loads."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_model, model_spec
from layerwise.options.export import ExportOptions
from layerwise.options.texts import TextOptions

HELP = "a layer as a smaller model that plain SentenceTransformer(path) loads, with proof"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--layer", help="a number, a depth such as 50%%, last (the model as shipped), or RUN:auto for what pick saved"
    )
    which.add_argument(
        "--recipe", help="file with a whole recipe, recipe.safetensors of pick, or a folder made by export"
    )
    parser.add_argument("--out", required=True, help="folder to write; must not exist")
    add_options(parser, ExportOptions)
    add_options(parser, TextOptions, only=["column"], helps={"column": "column of --fit that holds the text"})


def run(args: Namespace) -> int:
    from layerwise.api.export import export
    from layerwise.api.texts import texts
    from layerwise.maps.fitted import load_recipe
    from layerwise.selection.pick import Pick

    fit = args.fit if args.fit and (Path(args.fit).is_dir() or "://" in args.fit) else None
    if args.fit and fit is None:
        fit = texts(args.fit, column=args.column)
    layer: Any = load_recipe(args.recipe) if args.recipe else args.layer
    if args.layer and args.layer.endswith(":auto"):
        layer = Pick.load(args.layer.removesuffix(":auto"))
    export(model_spec(args), layer, args.out, **chosen(args, ExportOptions) | {"fit": fit})
    proof = json.loads((Path(args.out) / "layerwise.json").read_text(encoding="utf-8"))
    print(json.dumps(proof, indent=1))
    print(f"largest difference {proof['max_difference']:.1e}; saved in {args.out}", file=sys.stderr)
    return 0

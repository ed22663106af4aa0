"""`layerwise export`: a layer as a smaller model that plain sentence-transformers loads."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from layerwise.cli.options import add_model, model_spec

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
    parser.add_argument("--readout", default="raw", choices=["raw", "normed"])
    parser.add_argument("--tokens", default="all", help="all, no_first (needs a tokenizer's opening token), no_special")
    parser.add_argument(
        "--pooling", choices=["mean", "last", "first", "max"], help="default: as the model itself pools"
    )
    parser.add_argument("--transform", default="none", help="center, zscore, remove_top:3, whiten, whiten:0.1:128")
    parser.add_argument("--fit", help="what to fit the transform on: a file of texts, demo, or the folder of a scan")
    parser.add_argument("--column", default="text", help="column of --fit that holds the text")
    parser.add_argument("--normalize", action="store_true", help="vectors of length 1")
    parser.add_argument("--prompt", help="put before every text; default: the model's own, if it ships one")
    parser.add_argument("--scores", help="folder of an eval run, whose scores of this recipe go into the model card")
    parser.add_argument("--mode", default="portable", choices=["portable", "compact"])
    parser.add_argument("--backend", default="sentence_transformers", help="format; default: sentence_transformers")
    parser.add_argument("--max-length", type=int, help="longest input in tokens; default 512 or the model's limit")


def run(args: Namespace) -> int:
    from layerwise.api.export import export
    from layerwise.api.texts import texts
    from layerwise.maps.fitted import load_recipe
    from layerwise.selection.pick import Pick

    reading = ("readout", "tokens", "pooling", "transform", "normalize", "prompt")
    options = {name: getattr(args, name) for name in (*reading, "mode", "max_length", "scores", "backend")}
    fit = args.fit if args.fit and (Path(args.fit).is_dir() or "://" in args.fit) else None
    if args.fit and fit is None:
        fit = texts(args.fit, column=args.column)
    layer: Any = load_recipe(args.recipe) if args.recipe else args.layer
    if args.layer and args.layer.endswith(":auto"):
        layer = Pick.load(args.layer.removesuffix(":auto"))
    export(model_spec(args), layer, args.out, fit=fit, **options)
    proof = json.loads((Path(args.out) / "layerwise.json").read_text(encoding="utf-8"))
    print(json.dumps(proof, indent=1))
    print(f"largest difference {proof['max_difference']:.1e}; saved in {args.out}", file=sys.stderr)
    return 0

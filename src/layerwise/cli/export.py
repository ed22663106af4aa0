"""`layerwise export`: a layer as a smaller model that plain sentence-transformers loads."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from layerwise.cli.options import add_model, model_spec

HELP = "a layer as a smaller model that plain SentenceTransformer(path) loads, with proof"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--layer", required=True, help="a number, a depth such as 50%%, or last")
    parser.add_argument("--out", required=True, help="folder to write; must not exist")
    parser.add_argument("--readout", default="raw", choices=["raw", "normed"])
    parser.add_argument("--pooling", default="mean", choices=["mean", "last", "first", "max"])
    parser.add_argument("--transform", default="none", help="center, zscore, remove_top:3, whiten, whiten:0.1:128")
    parser.add_argument("--fit", help="texts without labels to fit the transform on: a file, or demo")
    parser.add_argument("--column", default="text", help="column of --fit that holds the text")
    parser.add_argument("--normalize", action="store_true", help="vectors of length 1")
    parser.add_argument("--prompt", default="", help="put before every text")
    parser.add_argument("--mode", default="portable", choices=["portable", "compact"])
    parser.add_argument("--max-length", type=int, help="longest input in tokens; default 512 or the model's limit")


def run(args: Namespace) -> int:
    import layerwise.api as api

    names = ("layer", "out", "readout", "pooling", "transform", "normalize", "prompt", "mode", "max_length")
    options = {name: getattr(args, name) for name in names}
    fit = api.texts(args.fit, column=args.column) if args.fit else None
    api.export(model_spec(args), fit=fit, **options)
    proof = json.loads((Path(args.out) / "layerwise.json").read_text(encoding="utf-8"))
    print(json.dumps(proof, indent=1))
    print(f"largest difference {proof['max_difference']:.1e}; saved in {args.out}", file=sys.stderr)
    return 0

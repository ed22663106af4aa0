"""`layerwise stress`: every layer on prompts made more and more extreme."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_data, add_engine, add_model, add_reading, engine_options, model_spec, open_data
from layerwise.core.display import redacted
from layerwise.inputs.perturbations.stress import KINDS

HELP = "every layer on repeated, random, short and long prompts"


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser)
    add_data(parser)
    add_reading(parser, several=", or several with commas", pooling="mean")
    add_engine(parser)
    parser.add_argument("--kind", required=True, choices=list(KINDS))
    parser.add_argument("--levels", help="shares such as 0,0.5,1, or lengths such as 16,64,256; default: the paper's")
    parser.add_argument("--metrics", default="prompt_entropy,prompt_entropy_normalized")
    parser.add_argument("--rows", default="raw", help="raw, unit, centered, centered_unit, or several with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="run folder: one scan a level, and the joined table")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.stress import stress
    from layerwise.core.checks import require_number, split_words

    names = ("metrics", "layers", "rows", "tokens", "readout", "pooling", "max_length", "batch_tokens", "seed")
    options = {name: getattr(args, name) for name in names} | engine_options(args)
    levels = [require_number("a level", level, "--levels") for level in split_words("levels", args.levels or [])]
    model, data = model_spec(args), open_data(args)
    table = stress(model, data, kind=args.kind, levels=levels or None, out=args.out, progress=True, **options)
    print(table.to_json() if args.json else table)
    if args.out:
        print(f"saved in {redacted(args.out)}", file=sys.stderr)
    return 0

"""`layerwise plot`: one figure for a paper, as PDF, SVG or PNG."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from layerwise.cli.options import add_overwrite, told_warnings

FIGURES = ("depth", "heatmap", "correlation", "checkpoints", "stress", "tradeoff", "cka")
SUFFIXES = (".pdf", ".svg", ".png")
HELP = "one figure for a paper, as PDF, SVG or PNG"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders; correlation: a scan and an eval, cka: two")
    parser.add_argument("--figure", default="depth", choices=FIGURES)
    parser.add_argument("-o", "--out", required=True, help="file to write: .pdf, .svg or .png")
    add_overwrite(parser)
    parser.add_argument("--metric", help="which metric or task; default: the first")
    parser.add_argument("--rows", help="row treatment; default: the first")
    parser.add_argument("--tokens", help="token choice; default: the first")
    parser.add_argument("--pooling", help="pooling; default: the first")
    parser.add_argument("--readout", help="readout; default: the first")
    parser.add_argument("--transform", help="linear map of the scores in a correlation; default: the first")
    parser.add_argument("--measure", choices=["spearman", "kendall", "distance"], help="of a correlation")
    parser.add_argument("--cost", choices=["latency", "parameters", "memory"], help="of a trade-off")


def run(args: Namespace) -> int:
    from layerwise.api.plot import plot
    from layerwise.core.errors import InputError
    from layerwise.core.outputs import require_new_file
    from layerwise.reporter.figures import save

    require_new_file(args.out, overwrite=args.overwrite)
    if Path(args.out).suffix not in SUFFIXES:
        raise InputError(f"cannot write {args.out!r}; a figure is a {', '.join(SUFFIXES)} file")
    names = ("metric", "rows", "tokens", "pooling", "readout", "transform", "measure", "cost")
    options = {name: getattr(args, name) for name in names if getattr(args, name)}
    with told_warnings():
        save(plot(*args.runs, figure=args.figure, **options), Path(args.out))
    print(f"{args.figure} in {args.out}", file=sys.stderr)
    return 0

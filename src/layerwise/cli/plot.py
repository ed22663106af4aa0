"""`layerwise plot`: one figure for a paper, as PDF, SVG or PNG."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_overwrite, short_warnings
from layerwise.options.plot import PlotOptions

SUFFIXES = (".pdf", ".svg", ".png")
HELP = "one figure for a paper, as PDF, SVG or PNG"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders; correlation: a scan and an eval, cka: two")
    parser.add_argument("-o", "--out", required=True, help="file to write: .pdf, .svg or .png")
    add_overwrite(parser)
    add_options(parser, PlotOptions)


def run(args: Namespace) -> int:
    from layerwise.api.plot import plot
    from layerwise.core.errors import InputError
    from layerwise.core.outputs import require_new_file
    from layerwise.reporter.figures import save

    require_new_file(args.out, overwrite=args.overwrite)
    if Path(args.out).suffix not in SUFFIXES:
        raise InputError(f"cannot write {args.out!r}; a figure is a {', '.join(SUFFIXES)} file")
    with short_warnings():
        save(plot(*args.runs, **chosen(args, PlotOptions)), Path(args.out))
    print(f"{args.figure} in {args.out}", file=sys.stderr)
    return 0

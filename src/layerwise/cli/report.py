"""`layerwise report`: runs of scan, stress and eval as one HTML file to look at."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_overwrite

HELP = "runs of scan, stress and eval as one HTML file that works offline"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders of scan, stress or eval, of any models")
    parser.add_argument("--html", required=True, metavar="FILE", help="file to write")
    add_overwrite(parser, " that is no page of layerwise; such a page is replaced anyway")
    parser.add_argument("--title", default="", help="heading of the page; default: the models")


def run(args: Namespace) -> int:
    from layerwise.api.report import report

    path = report(*args.runs, html=args.html, title=args.title, overwrite=args.overwrite)
    print(f"{path}: {path.stat().st_size / 1000:,.0f} kB; open it in a browser", file=sys.stderr)
    return 0

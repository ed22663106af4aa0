"""`layerwise compare`: what differs between runs, layer by layer; words first, pictures with --html."""

import sys
from argparse import ArgumentParser, Namespace

from layerwise.cli.options import add_overwrite

HELP = "what differs between runs: fine-tunes, sizes, checkpoints, architectures"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two or more run folders of scan or eval")
    parser.add_argument("--against", default="first", choices=["first", "previous"], help="the run to compare with")
    parser.add_argument("--rows", help="only this row treatment, such as centered_unit")
    parser.add_argument("--tokens", help="only this token choice, such as no_first")
    parser.add_argument("--html", metavar="FILE", help="also write a page with curves, heat maps and CKA")
    add_overwrite(parser, " that is no page of layerwise; such a page is replaced anyway")
    parser.add_argument("--json", action="store_true", help="print all differences as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.compare import compare

    compared = compare(
        *args.runs, against=args.against, rows=args.rows, tokens=args.tokens, html=args.html, overwrite=args.overwrite
    )
    print(compared.to_json() if args.json else compared)
    if args.html:
        print(f"pictures in {args.html}", file=sys.stderr)
    return 0

"""`layerwise correlate`: which metrics go with which task scores, over the layers of one model."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.options import told_warnings

HELP = "which metrics of a scan go with which scores of an eval, over the layers"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scan", help="run folder of `layerwise scan`")
    parser.add_argument("eval", help="run folder of `layerwise eval`")
    parser.add_argument("--readout", default="raw", choices=["raw", "normed"])
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(args: Namespace) -> int:
    from layerwise.api.correlate import correlate

    with told_warnings():
        table = correlate(args.scan, args.eval, readout=args.readout)
    print(table.to_json(orient="records") if args.json else table.round(3).to_string(index=False))
    return 0

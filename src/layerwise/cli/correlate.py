"""`layerwise correlate`: which metrics go with which task scores, over the layers of one model."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, chosen
from layerwise.cli.shared import add_json, short_warnings
from layerwise.options.correlate import CorrelateOptions

HELP = "which metrics of a scan go with which scores of an eval, over the layers"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("scan", help="run folder of `layerwise scan`")
    parser.add_argument("eval", help="run folder of `layerwise eval`")
    add_options(parser, CorrelateOptions)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.api.correlate import correlate

    with short_warnings():
        table = correlate(args.scan, args.eval, **chosen(args, CorrelateOptions))
    print(table.to_json(orient="records") if args.json else table.round(3).to_string(index=False))
    return 0

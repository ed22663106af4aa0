"""`layerwise report`: show runs of scan, stress and eval in one HTML file."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import say
from layerwise.verbs.report.options import ReportOptions

HELP = "show runs of scan, stress and eval in one HTML file that works offline"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders of scan, stress or eval; several models are allowed"
    )
    add_options(parser, ReportOptions)


def run(args: Namespace) -> int:
    from layerwise.verbs.report.api import report

    path = report(*args.runs, **option_values(args, ReportOptions))
    say(f"wrote {path} ({path.stat().st_size / 1000:,.0f} kB); open it in a browser")
    return 0

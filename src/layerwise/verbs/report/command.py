"""`layerwise report`: show runs of scan, stress and eval in one HTML file, or draw one figure of them."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, argument_group, option_values
from layerwise.cli.shared import say
from layerwise.core.errors import InputError
from layerwise.core.options import option_specs
from layerwise.verbs.report.options import FIGURE, PlotOptions, ReportOptions

DOOR, LINE = "look", "runs as one page that works offline, or as one figure"
HELP = "show runs in one HTML file that works offline, or draw one figure as PDF, SVG or PNG"
EXAMPLE = (
    "layerwise report RUN --html report.html\n  layerwise report RUN --figure depth --metric curvature -o curvature.pdf"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders of scan, stress, eval or shrink; several models are allowed"
    )
    add_options(parser, ReportOptions, defaults={"html": None})
    add_options(parser, PlotOptions, only=["figure"])
    out = next(one for one in option_specs(PlotOptions) if one.name == "out")
    argument_group(parser, FIGURE).add_argument("-o", out.flag, help=out.option.help, metavar=out.option.metavar)
    add_options(parser, PlotOptions, exclude=["figure", "out", "overwrite"])


def run(args: Namespace) -> int:
    if args.html is None and args.out is None:
        raise InputError("say what to write: --html FILE for a page, or --figure NAME --out FILE for a figure")
    if args.html is not None:
        from layerwise.verbs.report.api import report

        path = report(args.runs, **option_values(args, ReportOptions))
        say(f"wrote {path} ({path.stat().st_size / 1000:,.0f} kB); open it in a browser")
    if args.out is not None:
        from layerwise.verbs.report.plot import plot

        plot(args.runs, **option_values(args, PlotOptions))
        say(f"wrote {args.out}")
    return 0

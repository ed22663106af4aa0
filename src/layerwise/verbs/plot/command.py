"""`layerwise plot`: draw one figure for a paper, as PDF, SVG or PNG."""

from argparse import ArgumentParser, Namespace

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import say
from layerwise.core.options import option_specs
from layerwise.verbs.plot.options import PlotOptions

HELP = "draw one figure for a paper, as PDF, SVG or PNG"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders; correlation: a scan and an eval; cka: two scans"
    )
    out = next(one for one in option_specs(PlotOptions) if one.name == "out")  # the library can also return the figure
    parser.add_argument("-o", out.flag, required=True, help=out.option.help, metavar=out.option.metavar)
    add_options(parser, PlotOptions, exclude=["out"])


def run(args: Namespace) -> int:
    from layerwise.verbs.plot.api import plot

    plot(*args.runs, **option_values(args, PlotOptions))
    say(f"wrote {args.out}")
    return 0

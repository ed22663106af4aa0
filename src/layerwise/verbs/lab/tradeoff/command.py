"""`layerwise lab tradeoff`: what each layer scores and costs, with the layers marked that no other beats at both."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from layerwise.cli.flags import add_options, option_values
from layerwise.cli.shared import add_json, say
from layerwise.verbs.lab.tradeoff.options import TradeoffOptions

if TYPE_CHECKING:
    import pandas as pd

HELP = "score and cost (time, parameters, memory) of each layer of a run, with the Pareto front"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="folder of an eval (or scan) run")
    add_options(parser, TradeoffOptions)
    add_json(parser)


def run(args: Namespace) -> int:
    from layerwise.verbs.lab.tradeoff.api import tradeoff

    frame = tradeoff(args.run_folder, **option_values(args, TradeoffOptions), progress=True)
    if args.json:
        print(frame.to_json(orient="records"))
        return 0
    if "pareto" not in frame:
        message = f"{args.score} is a metric of a scan; a higher value is not better, so no layer is marked"
        say(message)
    print(table_text(frame))
    return 0


def table_text(frame: "pd.DataFrame") -> str:
    """The table within 80 columns: what is the same in every row is said once, above it."""
    shown = frame.assign(
        depth=(100 * frame.depth).round().astype(int).astype(str) + "%",
        score=frame.score.round(2),
        latency=frame.latency.map("{:.2f}".format) + frame.unsteady.map({True: "?", False: ""}),
        parameters=(frame.parameters / 1e6).round(1).astype(str) + "M",
        bytes=(frame.bytes / 1e6).round().astype(int).astype(str) + "MB",
    )
    if "pareto" in frame:
        shown["pareto"] = frame.pareto.map({True: "*", False: ""})
    if "model" in frame:
        shown["norm"] = shown.norm.where(frame.model == frame.model.iloc[0], "")  # another model is read as shipped
    same = [name for name in ("norm", "tokens", "transform") if frame[name].nunique() == 1]
    doubt = ["?: the repeats of a time disagreed"] if frame.unsteady.any() else []
    caption = ", ".join([
        *(f"{name} {frame[name].iloc[0]}" for name in same), "latency: share of the whole model's", *doubt
    ])  # fmt: skip
    spread = ["latency_low", "latency_high", "unsteady"]
    return (
        f"{caption}\n{shown.drop(columns=[*same, *spread]).rename(columns={'bytes': 'memory'}).to_string(index=False)}"
    )

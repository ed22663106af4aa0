"""plot: draw one figure for a paper."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.core.options import Option, option_specs, require_valid

FigureName = Literal["depth", "heatmap", "correlation", "inside", "checkpoints", "stress", "tradeoff", "cka"]
Measure = Literal["spearman", "kendall", "distance"]
Cost = Literal["latency", "parameters", "memory"]
NOT_OF_THE_FIGURE = ("figure", "ax", "out", "overwrite")


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """The options of `plot`."""

    figure: Annotated[FigureName, Option("which figure")] = "depth"
    out: Annotated[str | Path | None, Option("file to write: .pdf, .svg or .png", metavar="FILE")] = None
    overwrite: Annotated[bool, Option("replace an existing file")] = False
    ax: Annotated[Any, Option("the matplotlib Axes to draw on", library_only=True)] = None
    metric: Annotated[str | None, Option("which metric or task; default: the first of the run")] = None
    rows: Annotated[str | None, Option("row treatment; default: the first of the run")] = None
    tokens: Annotated[str | None, Option("token choice; default: the first of the run")] = None
    pooling: Annotated[str | None, Option("pooling; default: the first of the run")] = None
    norm: Annotated[str | None, Option("raw or normed; default: the first of the run")] = None
    transform: Annotated[
        str | None, Option("linear map of the scores in a correlation; default: the first of the run")
    ] = None
    measure: Annotated[Measure | None, Option("measure of a correlation; default: spearman")] = None
    cost: Annotated[Cost | None, Option("cost in a trade-off; default: latency")] = None

    def __post_init__(self) -> None:
        require_valid(self)

    def figure_options(self) -> dict[str, Any]:
        """The options of the figure itself that were given; the figure has its own defaults for the others."""
        names = [spec.name for spec in option_specs(PlotOptions) if spec.name not in NOT_OF_THE_FIGURE]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

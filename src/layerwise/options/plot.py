"""plot: one figure for a paper."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from layerwise.options.field import Option, declared, require_valid

FigureName = Literal["depth", "heatmap", "correlation", "checkpoints", "stress", "tradeoff", "cka"]
Measure = Literal["spearman", "kendall", "distance"]
Cost = Literal["latency", "parameters", "memory"]


@dataclass(frozen=True, kw_only=True)
class PlotOptions:
    """The options of `plot`."""

    figure: Annotated[FigureName, Option("which figure")] = "depth"
    ax: Annotated[Any, Option("the matplotlib Axes to draw on", library_only=True)] = None
    metric: Annotated[str | None, Option("which metric or task; default: the first")] = None
    rows: Annotated[str | None, Option("row treatment; default: the first")] = None
    tokens: Annotated[str | None, Option("token choice; default: the first")] = None
    pooling: Annotated[str | None, Option("pooling; default: the first")] = None
    norm: Annotated[str | None, Option("raw or normed; default: the first")] = None
    transform: Annotated[str | None, Option("linear map of the scores in a correlation; default: the first")] = None
    measure: Annotated[Measure | None, Option("of a correlation; default: spearman")] = None
    cost: Annotated[Cost | None, Option("of a trade-off; default: latency")] = None

    def __post_init__(self) -> None:
        require_valid(self)

    def of_figure(self) -> dict[str, Any]:
        """What was asked of the figure itself; what was not asked is left to it."""
        names = [one.name for one in declared(PlotOptions) if one.name not in ("figure", "ax")]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

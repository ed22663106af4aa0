"""report: a page that shows runs, or a figure."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from layerwise.core.options import Option, option_specs, require_valid
from layerwise.runs.folder import RunLike
from layerwise.runs.table import LayerTable

FIGURE = "one figure for a paper (--figure NAME --out FILE)"
FigureName = Literal["depth", "heatmap", "correlation", "inside", "checkpoints", "stress", "tradeoff", "cka"]
Measure = Literal["spearman", "kendall", "distance"]
Cost = Literal["latency", "parameters", "memory"]
NOT_OF_THE_FIGURE = ("runs", "figure", "ax", "out", "overwrite")
OverwritePage = Annotated[
    bool, Option("replace an existing file that layerwise did not write; a page of layerwise is always replaced")
]


@runtime_checkable
class Compared(Protocol):
    """What `compare` returns, as far as figures read it."""

    @property
    def table(self) -> LayerTable: ...
    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class ReportOptions:
    """The options of `report`."""

    runs: Annotated[
        RunLike | Sequence[RunLike],
        Option(
            "a run folder, url such as s3://bucket/run or LayerTable, or several in a list",
            library_only=True,
            is_recorded=False,
        ),
    ]
    _: KW_ONLY
    html: Annotated[str | Path, Option("file to write", metavar="FILE")]
    title: Annotated[str, Option("heading of the page; default: the names of the models")] = ""
    where: Annotated[
        Sequence[str] | None,
        Option(
            "show only rows whose column has this value, such as model=gpt2; may be repeated",
            metavar="COLUMN=VALUE",
            is_repeated=True,
        ),
    ] = None
    overwrite: OverwritePage = False

    def __post_init__(self) -> None:
        require_valid(self)


@dataclass(frozen=True)
class PlotOptions:
    """The options of a figure: `report --figure` and `plot`."""

    runs: Annotated[
        RunLike | Compared | Sequence[RunLike | Compared],
        Option(
            "a run folder, url or LayerTable, or several in a list; correlation takes a scan and an eval, cka two "
            "scans or a Comparison, tradeoff a folder in which tradeoff has been run",
            library_only=True,
        ),
    ]
    _: KW_ONLY
    figure: Annotated[
        FigureName,
        Option(
            "depth: one metric by depth, one line per model; heatmap: all metrics of one model; checkpoints: one "
            "metric by layer and training step; the other names say what they show",
            group=FIGURE,
        ),
    ] = "depth"
    out: Annotated[str | Path | None, Option("file to write: .pdf, .svg or .png", group=FIGURE, metavar="FILE")] = None
    overwrite: Annotated[bool, Option("replace an existing file", group=FIGURE)] = False
    ax: Annotated[Any, Option("the matplotlib Axes to draw on", group=FIGURE, library_only=True)] = None
    metric: Annotated[str | None, Option("which metric or task; default: the first of the run", group=FIGURE)] = None
    rows: Annotated[str | None, Option("row treatment; default: the first of the run", group=FIGURE)] = None
    tokens: Annotated[str | None, Option("token choice; default: the first of the run", group=FIGURE)] = None
    pooling: Annotated[str | None, Option("pooling; default: the first of the run", group=FIGURE)] = None
    norm: Annotated[str | None, Option("raw or normed; default: the first of the run", group=FIGURE)] = None
    transform: Annotated[
        str | None, Option("linear map of the scores in a correlation; default: the first of the run", group=FIGURE)
    ] = None
    measure: Annotated[Measure | None, Option("measure of a correlation; default: spearman", group=FIGURE)] = None
    cost: Annotated[Cost | None, Option("cost in a trade-off; default: latency", group=FIGURE)] = None

    def __post_init__(self) -> None:
        require_valid(self)

    def figure_options(self) -> dict[str, Any]:
        """The options of the figure itself that were given; the figure has its own defaults for the others."""
        names = [spec.name for spec in option_specs(PlotOptions) if spec.name not in NOT_OF_THE_FIGURE]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

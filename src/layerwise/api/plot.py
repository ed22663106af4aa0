"""plot: one figure for a paper."""

from typing import Any

from layerwise.api.correlate import correlate
from layerwise.core.errors import InputError
from layerwise.options.plot import Cost, FigureName, Measure, PlotOptions
from layerwise.reporter.content import run_labels
from layerwise.reporter.figures import FIGURES, require_figure
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.sweep.comparison import Comparison, compare_runs


def plot(
    *runs: Any,
    figure: FigureName = "depth",
    ax: Any = None,
    metric: str | None = None,
    rows: str | None = None,
    tokens: str | None = None,
    pooling: str | None = None,
    norm: str | None = None,
    transform: str | None = None,
    measure: Measure | None = None,
    cost: Cost | None = None,
) -> Any:
    """A figure for a paper, at column width, on one matplotlib Axes, which is returned.

    `figure` is depth, heatmap, correlation (a scan and an eval), checkpoints, stress, tradeoff or cka (two runs, or a
    Comparison). A run is a folder or a LayerTable. `metric`, `rows`, `tokens`, `pooling` and `norm` choose the
    curve, by default the first there is; `measure` and `transform` are for correlation, `cost` is for tradeoff. What
    the figure does not use is refused.
    """
    options = PlotOptions(
        figure=figure,
        ax=ax,
        metric=metric,
        rows=rows,
        tokens=tokens,
        pooling=pooling,
        norm=norm,
        transform=transform,
        measure=measure,
        cost=cost,
    ).of_figure()
    require_figure(figure, options)
    if not runs:
        raise InputError("no run is named; pass folders that scan, stress or eval wrote")
    draw = FIGURES[figure]
    if figure == "cka":
        compared = runs[0] if isinstance(runs[0], Comparison) else compare_runs(runs[:2], **options)
        return draw(compared.to_dict()["pairs"][0], ax=ax)
    if figure == "correlation":
        return draw(correlate(*runs), ax=ax, **options)
    if isinstance(runs[0], Comparison):
        return draw(runs[0].table, ax=ax, **options)
    if figure == "tradeoff":
        return draw(Run.open(runs[0]).tradeoff, ax=ax, **options)
    opened = [part for run in runs for part in Run.open(run).each_model()]
    tables = [run.table.named(label) for run, label in zip(opened, run_labels(opened), strict=True)]
    return draw(LayerTable.join(tables), ax=ax, **options)

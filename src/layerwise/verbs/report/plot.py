"""plot: draws one figure for a paper, as `report --figure` does."""

from collections.abc import Sequence
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.options import takes
from layerwise.core.outputs import require_new_file
from layerwise.runs.folder import Run, run_list
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.alignment import NotComparableError, align, load_samples
from layerwise.verbs.report.content import run_labels
from layerwise.verbs.report.correlations import correlate_runs
from layerwise.verbs.report.figures import FIGURES, require_figure, require_suffix, save
from layerwise.verbs.report.options import Compared, FigureName, PlotOptions


@takes(PlotOptions)
def plot(options: PlotOptions) -> Any:
    """Draws a figure for a paper, one column wide, on a matplotlib Axes.

    Returns:
        The matplotlib Axes. If `out` is given and `ax` is not, its figure is closed after writing.

    Raises:
        InputError: An option is unknown or not used by this figure, the runs do not have what it shows, or `out`
            exists.
        MissingExtra: matplotlib is not installed.

    Example:
        >>> table = layerwise.scan(model, texts, metrics="curvature")
        >>> ax = layerwise.plot(table, metric="curvature", out=folder / "curvature.svg")
        >>> ax.get_ylabel()
        'curvature (radians)'
    """
    asked, runs = options.figure_options(), run_list(options.runs)
    require_figure(options.figure, asked)
    if not runs:
        raise InputError("no run given; pass folders written by scan, stress or eval")
    path = None if options.out is None else require_new_file(options.out, overwrite=options.overwrite)
    if path is not None:
        require_suffix(path)
    drawn = draw(runs, options.figure, options.ax, asked)
    if path is not None:
        save(drawn, path, close=options.ax is None)
    return drawn


def draw(runs: Any, figure: FigureName, ax: Any, options: dict[str, Any]) -> Any:
    """The figure on its Axes; each kind of figure reads something else from the runs."""
    make, first = FIGURES[figure], runs[0]
    if figure == "cka":
        return make(first.to_dict()["pairs"][0] if isinstance(first, Compared) else aligned(runs, **options), ax=ax)
    if figure == "correlation":
        if len(runs) != 2:
            raise InputError(f"a correlation takes a scan and an eval, not {len(runs)} runs")
        return make(correlate_runs(*runs), ax=ax, **options)
    if isinstance(first, Compared):
        return make(first.table, ax=ax, **options)
    if figure == "tradeoff":
        return make(Run.open(first).tradeoff, ax=ax, **options)
    opened = [part for run in runs for part in Run.open(run).split_by_model()]
    tables = [run.table.with_model_name(label) for run, label in zip(opened, run_labels(opened), strict=True)]
    return make(LayerTable.join(tables), ax=ax, **options)


def aligned(runs: Sequence[Any], tokens: str | None = None) -> dict[str, Any]:
    """How similar the layers of two runs are, as plain data; the reason where that is not known."""
    if len(runs) < 2:
        raise InputError("figure cka takes two scans")
    opened = [Run.open(run) for run in runs[:2]]
    for run in opened:
        run.table.require_model()  # layers of several models have the same numbers
    first, second = run_labels(opened)
    pair: dict[str, Any] = {"first": first, "second": second}
    if any(run.folder is None or run.kind != "scan" for run in opened):
        return pair
    tokens = tokens or next((score.tokens for score in opened[0].table), "all")
    try:
        return pair | {"cka": align(opened, [load_samples(run) for run in opened], tokens).to_record()}
    except NotComparableError as error:
        return pair | {"notes": [f"no CKA: {error}"]}

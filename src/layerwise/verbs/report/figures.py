"""Figures for papers: one column wide, in colours that colour-blind readers can distinguish, drawn by matplotlib.

Every figure draws on one Axes, a new one or one that is given, so that papers can put several side by side.
matplotlib is imported late.
"""

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.checks import require_choice
from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.files import write_atomically
from layerwise.metrics.catalog import CATALOG
from layerwise.models.families.family import is_stream
from layerwise.runs.labels import training_step
from layerwise.runs.scores import LayerScore, curves_with_ends, same_columns
from layerwise.runs.summary import BLOCK_OUTPUT
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.drawing import (
    DIVERGING,
    LINES,
    RAMP,
    Curve,
    axis_label,
    display_name,
    draw_curve,
    draw_grid,
    draw_ring,
    finish_lines,
    line_colours,
    ordered_colour,
    place_of_ring,
    shorten,
    use_scale,
    with_unit,
)

PANEL_HEIGHT = 2.4  # inches
MOST_COLUMNS = 3


def panel_axes(count: int, heights: Sequence[float] = ()) -> list[Any]:
    """The Axes of so many panels in one figure, row by row, at most three side by side."""
    import matplotlib.pyplot as plt

    columns = min(count, MOST_COLUMNS)
    rows = math.ceil(count / columns)
    height = max([PANEL_HEIGHT, *heights])
    with figure_axes(None, height) as one, plt.rc_context(STYLE):
        if count == 1:
            return [one]
        plt.close(one.figure)
        _, axes = plt.subplots(
            rows, columns, figsize=(COLUMN_WIDTH * columns, height * rows), layout="constrained", squeeze=False
        )
    found = [ax for row in axes for ax in row]
    for ax in found[count:]:
        ax.set_visible(False)
    return found[:count]


def draw_orders(frame: pd.DataFrame) -> Any:
    """The entropy by its order, one line per exponent, from slow to fast decay."""
    with figure_axes(None, PANEL_HEIGHT) as ax:
        exponents = sorted(frame.exponent.unique())
        for index, exponent in enumerate(exponents):
            part = frame[frame.exponent == exponent].sort_values("order")
            ax.plot(part.order, part.entropy, color=ordered_colour(index, len(exponents)), label=f"{exponent:g}")
        ax.set(xscale="log", xlabel="order alpha", ylabel="matrix entropy (nats)")
        ax.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])  # math in labels is switched off
        ax.legend(title="exponent", frameon=False)
    return ax


COLUMN_WIDTH = 3.35  # inches: one column of a two-column paper
MARKERS = "osD^vPX<>*"  # beside the colours, so that lines also differ in grey
SUFFIXES = (".pdf", ".svg", ".png")
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.grid": False,
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # embeds fonts, so that text stays selectable
    "svg.hashsalt": "layerwise",  # identical figures give identical files
    "text.parse_math": False,  # a $ in a model name is not math mode
}


@contextmanager
def figure_axes(ax: Any, height: float) -> Iterator[Any]:
    """The Axes to draw on, given or new, in the style of all figures."""
    if find_spec("matplotlib") is None:
        raise MissingExtra("figures need matplotlib: pip install 'layerwise[plot]'")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        if ax is None:
            _, ax = plt.subplots(figsize=(COLUMN_WIDTH, height), layout="constrained")
        yield ax


def depth(table: LayerTable, *, metric: str | None = None, ax: Any = None, **setting: Any) -> Any:
    """One metric by relative depth, one line per model, with 95 % bands; a ring is the normed last layer."""
    chosen = chosen_curves(table, metric, **setting)
    with figure_axes(ax, 2.3) as ax:
        colours = line_colours([label for label, *_ in chosen])
        values = [s.value for _, curve, _ in chosen for s in curve]
        log = use_scale(ax, chosen)
        for index, (label, curve, normed) in enumerate(chosen):
            marker = MARKERS[index % len(MARKERS)]
            draw_curve(ax, curve, label=label, color=colours[index], marker=marker)
            if normed is not None:
                draw_ring(ax, normed, colours[index], place_of_ring(values, normed.value, log=log))
        finish_lines(ax, axis_label(table, chosen[0][1][0].metric), "depth (%)")
    return ax


def inside(table: LayerTable, *, metric: str | None = None, ax: Any = None, **setting: Any) -> Any:
    """One metric of one model by layer, one line per point inside the block; solid lines are the residual stream."""
    points = list(dict.fromkeys(s.point for s in table))
    models = list(dict.fromkeys(s.model for s in table))
    if len(points) < 2 or len(models) > 1:
        raise InputError("this figure shows a single run of `layerwise scan --inside`")
    with figure_axes(ax, 2.6) as ax:
        curves = [(name, table.main_curve(metric, setting | {"point": name}), None) for name in points]
        use_scale(ax, curves)
        for index, (name, curve, _) in enumerate(curves):
            style, label = "-" if is_stream(name) else "--", display_name(name or BLOCK_OUTPUT)
            draw_curve(ax, curve, label=label, color=LINES[index % len(LINES)], marker="", by="layer", linestyle=style)
        finish_lines(ax, axis_label(table, curves[0][1][0].metric), "layer")
    return ax


def checkpoints(table: LayerTable, *, metric: str | None = None, ax: Any = None, **setting: Any) -> Any:
    """One metric by layer and training step, as a heat map."""
    chosen = [(training_step(label), curve) for label, curve, _ in chosen_curves(table, metric, **setting)]
    steps = sorted((step, curve) for step, curve in chosen if step is not None)
    if len(steps) < 2:
        raise InputError(
            "the checkpoints figure needs runs of at least two models whose names end with a step, such as .../step64"
        )
    layers = sorted({s.layer for _, curve in steps for s in curve})
    values_by_layer = [{s.layer: s.value for s in curve} for _, curve in steps]
    values = [[row.get(layer, math.nan) for layer in layers] for row in values_by_layer]
    with figure_axes(ax, 0.55 + 0.16 * len(steps) + 0.6) as ax:
        image = draw_grid(ax, values, RAMP, xs=layers, ys=[f"{step:,}" for step, _ in steps])
        ax.set(xlabel="layer", ylabel="training step")
        ax.figure.colorbar(image, ax=ax, label=axis_label(table, steps[0][1][0].metric), pad=0.02)
    return ax


def heatmap(table: LayerTable, *, ax: Any = None, **setting: Any) -> Any:
    """Every metric by layer for one model, each on its own scale from its smallest to its largest value."""
    models = list(dict.fromkeys(s.model for s in table))
    if len(models) != 1:
        raise InputError(f"a heat map shows one model, not {len(models)} ({', '.join(models[:4])}); pass one run")
    metrics = list(dict.fromkeys(s.metric for s in table if not s.condition))
    require_unstressed(table)
    curves = [table.main_curve(metric, setting) for metric in metrics]
    layers = sorted({s.layer for curve in curves for s in curve})
    values = []
    for curve in curves:
        finite = [s.value for s in curve if math.isfinite(s.value)]
        low, span = min(finite, default=0.0), (max(finite, default=1.0) - min(finite, default=0.0)) or 1.0
        scaled = {s.layer: (s.value - low) / span for s in curve}
        values.append([scaled.get(layer, math.nan) for layer in layers])
    with figure_axes(ax, 0.7 + 0.17 * len(metrics)) as ax:
        image = draw_grid(ax, values, RAMP, xs=layers, ys=[display_name(metric) for metric in metrics])
        ax.set(xlabel="layer")
        bar = ax.figure.colorbar(image, ax=ax, ticks=[0, 1], pad=0.02)
        bar.ax.set_yticklabels(["min", "max"])
    return ax


def stress(table: LayerTable, *, metric: str | None = None, ax: Any = None, **setting: Any) -> Any:
    """One metric by layer on stressed prompts, one line per level, from light to dark."""
    kinds = list(dict.fromkeys(s.condition for s in table if s.condition))
    if len(kinds) != 1:
        available = f"these runs have {', '.join(kinds)}" if kinds else "none was passed"
        raise InputError(f"a stress figure shows a single run of `layerwise lab stress`; {available}")
    chosen = sorted(chosen_curves(table, metric, stressed=True, **setting), key=lambda item: item[1][0].level)
    with figure_axes(ax, 2.3) as ax:
        use_scale(ax, chosen)
        for index, (_, curve, _) in enumerate(chosen):
            colour = ordered_colour(index, len(chosen))
            draw_curve(ax, curve, label=f"{curve[0].level:g}", color=colour, marker="", by="layer")
        finish_lines(ax, axis_label(table, chosen[0][1][0].metric), "layer", title=display_name(kinds[0]))
    return ax


def correlation(frame: pd.DataFrame, *, measure: str = "spearman", ax: Any = None, **setting: Any) -> Any:
    """Task by metric: how scores correlate with metrics over the layers of one model. A description, not a test."""
    frame = select_scores(frame, setting.get("pooling"), setting.get("transform"))
    for name in ("rows", "tokens"):
        available = frame.groupby("metric")[name].unique()
        chosen = {metric: choose_value(list(values), setting.get(name)) for metric, values in available.items()}
        frame = frame[frame[name] == frame.metric.map(chosen)]
    grid = frame.pivot(index="task", columns="metric", values=measure)
    catalog_order = [m.name for m in CATALOG if m.name in grid]
    grid = grid[[*catalog_order, *(m for m in grid if m not in catalog_order)]]
    has_sign = measure != "distance"  # that correlation is from 0 to 1
    with figure_axes(ax, 1.6 + 0.13 * len(grid)) as ax:
        image = draw_grid(
            ax,
            grid.to_numpy().tolist(),
            DIVERGING if has_sign else RAMP,
            xs=[display_name(m) for m in grid],
            ys=list(grid.index),
            low=-1 if has_sign else 0,
            high=1,
            slanted=True,
        )
        ax.tick_params(labelsize=6)
        ax.figure.colorbar(image, ax=ax, label=measure.capitalize(), location="top", aspect=30, pad=0.02)
    return ax


def select_scores(frame: pd.DataFrame, pooling: str | None, transform: str | None) -> pd.DataFrame:
    """The correlations with scores of one pooling and map, as given or the first; warns about what is not shown."""
    for name, option, value in (("task_pooling", "pooling", pooling), ("transform", "transform", transform)):
        available = list(frame[name].unique())
        if value is not None and value not in available:
            raise InputError(f"no score with {option} {value!r}; choose from {', '.join(available)}")
        if value is None and len(available) > 1:
            others = ", ".join(available[1:])
            warnings.warn(
                f"only {option} {available[0]} is shown, not {others}; choose with {option}=...", stacklevel=3
            )
        frame = frame[frame[name] == (value or available[0])]
    return frame


def tradeoff(record: Mapping[str, Any], *, cost: str = "latency", ax: Any = None) -> Any:
    """The score of each layer by its cost; filled points are Pareto-optimal, numbers are layers."""
    rows = [row for row in record.get("layers", []) if row.get("score") is not None and row.get(cost) is not None]
    if not rows:
        raise InputError(f"no layer has both a score and a {cost}; pass a run folder with tradeoff.json")
    front = sorted((row for row in rows if row.get("pareto")), key=lambda row: row[cost])
    units = record.get("units", {})
    with figure_axes(ax, 2.3) as ax:
        ax.plot([row[cost] for row in front], [row["score"] for row in front], color=LINES[0], linewidth=1)
        for row in rows:
            face = LINES[0] if row.get("pareto") else "white"
            point = {"markerfacecolor": face, "markeredgecolor": LINES[0], "markeredgewidth": 0.9, "markersize": 4}
            ax.plot(row[cost], row["score"], "o", **point)
        for row in front:
            ax.annotate(
                row["layer"],
                (row[cost], row["score"]),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
            )
        ax.margins(0.08, 0.12)
        ax.set(xlabel=with_unit(cost, units.get(cost)), ylabel=with_unit("score", units.get("score")))
    return ax


def cka(pair: Mapping[str, Any], *, ax: Any = None) -> Any:
    """Linear CKA between the layers of two models on the same texts."""
    alignment = pair.get("cka")
    if not alignment:
        reasons = [note for note in pair.get("notes", ()) if note.startswith("no CKA")]
        advice = "scan both with --out on the same data"
        raise InputError("; ".join(["the two runs have no stored rows of the same texts", *reasons, advice]))
    values = [[math.nan if v is None else v for v in line] for line in alignment["values"]]
    with figure_axes(ax, 2.7) as ax:
        image = draw_grid(ax, values, RAMP, xs=alignment["second_layers"], ys=alignment["first_layers"], low=0, high=1)
        ax.invert_yaxis()
        ax.set(xlabel=f"layer of {shorten(pair['second'])}", ylabel=f"layer of {shorten(pair['first'])}")
        ax.figure.colorbar(image, ax=ax, label="linear CKA", pad=0.02)
    return ax


FIGURES: dict[str, Callable[..., Any]] = {
    "depth": depth,
    "heatmap": heatmap,
    "correlation": correlation,
    "inside": inside,
    "checkpoints": checkpoints,
    "stress": stress,
    "tradeoff": tradeoff,
    "cka": cka,
}
SETTING_OPTIONS = {"rows", "tokens", "pooling", "norm"}
FIGURE_OPTIONS = {  # which options each figure takes
    "depth": {"metric", *SETTING_OPTIONS},
    "heatmap": SETTING_OPTIONS,
    "correlation": {"measure", "rows", "tokens", "pooling", "transform"},
    "inside": {"metric", *SETTING_OPTIONS},
    "checkpoints": {"metric", *SETTING_OPTIONS},
    "stress": {"metric", *SETTING_OPTIONS},
    "tradeoff": {"cost"},
    "cka": {"tokens"},
}


def require_figure(figure: str, options: Mapping[str, Any]) -> None:
    require_choice("figure", figure, FIGURES)
    if unknown := set(options) - FIGURE_OPTIONS[figure]:
        accepted = ", ".join(sorted(FIGURE_OPTIONS[figure]))
        raise InputError(f"figure {figure} has no option {', '.join(sorted(unknown))}; it accepts {accepted}")


def require_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot write {str(path)!r}; a figure is a {', '.join(SUFFIXES)} file")


def save(ax: Any, path: Path, *, close: bool = True) -> None:
    """Writes the figure of an Axes as .pdf, .svg or .png; the same figure gives the same bytes."""
    import matplotlib.pyplot as plt

    kind = path.suffix.removeprefix(".")
    buffer = io.BytesIO()
    with plt.rc_context(STYLE):
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
        ax.figure.savefig(buffer, format=kind, metadata=metadata)
    if close:
        plt.close(ax.figure)
    write_atomically(path, buffer.getvalue())


def require_unstressed(table: LayerTable) -> None:
    if all(s.condition for s in table):
        raise InputError("this is a run of `layerwise lab stress`; use --figure stress")


def chosen_curves(
    table: LayerTable, metric: str | None, *, stressed: bool = False, **setting: Any
) -> list[tuple[str, Curve, LayerScore | None]]:
    """A label, a curve and its normed last layer for each model, in the setting of the main curve, or the one given."""
    if not stressed:
        require_unstressed(table)
    scores = [s for s in table if bool(s.condition) == stressed]
    main = LayerTable(tuple(scores)).main_curve(metric, setting)[0]
    alike = [s for s in scores if same_columns(s, main, ("metric", "rows", "tokens", "pooling", "transform", "point"))]
    found: list[tuple[str, Curve, LayerScore | None]] = [
        (key[0], curve, normed) for key, curve, normed in curves_with_ends(alike) if key[-1] == main.norm
    ]
    if not found:
        raise InputError(
            f"{main.metric} was read with norm {main.norm!r} at layer {main.layer} only, which is a ring on the raw "
            "curve; leave --norm (norm=) out"
        )
    return found


def choose_value(available: Sequence[str], value: str | None) -> str:
    """The given word if a metric has it, else the first that it has."""
    return value if value is not None and value in available else available[0]

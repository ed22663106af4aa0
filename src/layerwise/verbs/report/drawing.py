"""What figures are drawn from: curves with bands, rings, grids of colours, labels. An Axes is given to each.

Colours are safe for colour-blind readers, on white and on black, and distinct in greyscale. Page and figures ask here
whether an axis is logarithmic and whether a ring fits on it, so that both show the same.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from layerwise.runs.labels import training_step
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.captions import Caption, captions

LOG_FROM = 100.0  # times: a curve whose largest value is more than this many times its smallest is drawn on a log axis
STRETCH = 2.0  # times: a ring that would stretch the axis by more than this is marked at the edge, with its value

Place = Literal["inside", "above", "below"]


def is_log(values: Iterable[float]) -> bool:
    """True if curves with these values belong on a logarithmic axis. Undefined values are left out."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) > LOG_FROM * min(known)


def place_of_ring(values: Iterable[float], ring: float, *, log: bool) -> Place:
    """Where the normed last layer is drawn beside curves with these values: inside the axis, or at its edge."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known or not math.isfinite(ring):
        return "inside"
    if log and ring <= 0:
        return "below"
    low, high, at = (math.log(x) if log else x for x in (min(known), max(known), ring))
    span = high - low or abs(high) or 1.0
    if max(high, at) - min(low, at) <= STRETCH * span:
        return "inside"
    return "above" if at > high else "below"


# The Okabe-Ito hues, darkened for white and lightened for dark backgrounds, so that thin lines are visible.
LINES = ("#0072B2", "#D55E00", "#00845F", "#B0467F", "#8A6D00", "#3F3D99", "#3D97CC", "#6B6B6B")
LINES_ON_DARK = ("#56B4E9", "#FF8A4C", "#2CC79A", "#E58BBB", "#E0B84A", "#A5A3F0", "#9BD8FF", "#B8B8B8")

# From low to high, perceptually even; high values contrast with the background.
RAMP = ("#EDF3F2", "#B4D8CE", "#62AFAE", "#2A7796", "#1C4674", "#152447")
RAMP_ON_DARK = ("#1B2530", "#1E4A60", "#23767F", "#54A68F", "#A5D3A0", "#F3F6CF")

# From low to high around a neutral middle.
DIVERGING = ("#0B5FA5", "#7FB2D9", "#F1F1EE", "#EBA273", "#C04A05")
DIVERGING_ON_DARK = ("#6CB8F5", "#2F6FA3", "#262B31", "#A85A2A", "#FF9A57")


def colours() -> dict[str, Any]:
    """All colours, for the page's script."""
    return {
        "light": {"lines": LINES, "ramp": RAMP, "diverging": DIVERGING},
        "dark": {"lines": LINES_ON_DARK, "ramp": RAMP_ON_DARK, "diverging": DIVERGING_ON_DARK},
    }


def ramp_colour(ramp: Sequence[str], fraction: float) -> str:
    """The colour at a position from 0 to 1 on a ramp, interpolated between neighbours."""
    position = min(max(fraction, 0.0), 1.0) * (len(ramp) - 1)
    left = min(int(position), len(ramp) - 2)
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in ramp[left : left + 2]]
    mixed = [round(a + (b - a) * (position - left)) for a, b in zip(*ends, strict=True)]
    return "#{:02X}{:02X}{:02X}".format(*mixed)


Curve = Sequence[LayerScore]
LONGEST_AXIS_LABEL = 36  # characters: at the size of our text, what the height of a panel holds


def line_colours(labels: Sequence[str]) -> list[str]:
    """One colour per model; checkpoints of a training run from light to dark, in the order of their steps."""
    steps = [training_step(label) for label in labels]
    if len(labels) > 1 and None not in steps:
        order = sorted(steps, key=lambda step: step or 0)
        return [ordered_colour(order.index(step), len(steps)) for step in steps]
    return [LINES[place % len(LINES)] for place in range(len(labels))]


def ordered_colour(place: int, count: int) -> str:
    return ramp_colour(RAMP, 0.36 + 0.64 * place / max(1, count - 1))


def use_scale(ax: Any, chosen: Sequence[tuple[str, Curve, LayerScore | None]]) -> bool:
    """Sets the scale of the axis for these curves, as the page does; True if it is logarithmic."""
    first = chosen[0][1][0]
    log = first.rows != "-" and is_log(s.value for _, curve, _ in chosen for s in curve)  # scores of tasks: linear
    ax.set_yscale("log" if log else "linear")
    if log:
        ax.yaxis.set_major_formatter("{x:g}")  # the usual one writes math, which is switched off
        ax.yaxis.set_minor_formatter("")
    return log


def draw_curve(
    ax: Any, curve: Curve, *, label: str, color: str, marker: str, by: str = "depth", linestyle: str = "-"
) -> None:
    scale = 100.0 if by == "depth" else 1.0
    xs = [scale * getattr(s, by) for s in curve]
    ax.fill_between(xs, [s.ci_low for s in curve], [s.ci_high for s in curve], color=color, alpha=0.18, linewidth=0)
    ax.plot(
        xs,
        [s.value for s in curve],
        color=color,
        linewidth=1.2,
        linestyle=linestyle,
        marker=marker,
        markersize=3,
        markevery=max(1, len(xs) // 8),
        label=shorten(label),
    )


def draw_ring(ax: Any, normed: LayerScore, color: str, place: Place) -> None:
    """The normed last layer: a ring, or an arrow at the edge with the value, where a ring would flatten the curve."""
    style = {"markersize": 5, "markerfacecolor": "none", "markeredgecolor": color, "clip_on": False}
    x = 100.0 * normed.depth
    if place == "inside":
        ax.plot(x, normed.value, "o", **style)
        return
    y, mark, side = (1.0, "^", "top") if place == "above" else (0.0, "v", "bottom")
    ax.plot(x, y, mark, transform=ax.get_xaxis_transform(), **style)
    ax.annotate(
        f"{normed.value:.3g}",
        (x, y),
        xycoords=ax.get_xaxis_transform(),
        xytext=(-5, 0),
        textcoords="offset points",
        ha="right",
        va=side,
        fontsize=6.5,
        color=color,
    )


def finish_lines(ax: Any, ylabel: str, xlabel: str, title: str = "") -> None:
    """Axis labels, faint lines at the ticks, and a legend above the curves."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(axis="y", color="#E4E8EB", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.margins(x=0.02)
    handles, labels = ax.get_legend_handles_labels()
    longest = max(map(len, labels))
    columns = max(1, min(len(labels), 44 // (longest + 5)))
    ax.legend(
        handles,
        labels,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns,
        frameon=False,
        borderaxespad=0.2,
        columnspacing=1.2,
        handlelength=1.8,
        title=title or None,
        alignment="left",
    )


def draw_grid(
    ax: Any,
    values: Any,
    ramp: Sequence[str],
    *,
    xs: Sequence[Any],
    ys: Sequence[Any],
    low: float | None = None,
    high: float | None = None,
    slanted: bool = False,
) -> Any:
    """A grid of colours with as many labels as fit."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("layerwise", list(ramp)).with_extremes(bad="#FFFFFF")
    drawn = ax.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    for axis, labels, most in ((ax.xaxis, xs, 99 if slanted else 10), (ax.yaxis, ys, 40)):
        every = next(n for n in (1, 2, 3, 5, 10, 20, 25, 50, 100, 1000) if len(labels) <= n * most)
        places = list(range(0, len(labels), every))
        axis.set_ticks(places, [shorten(str(labels[place])) for place in places])
    ax.tick_params(length=0)
    if slanted:
        ax.set_xticks(
            ax.get_xticks(),
            [text.get_text() for text in ax.get_xticklabels()],
            rotation=60,
            ha="right",
            rotation_mode="anchor",
        )
    ax.spines[:].set_visible(False)
    return drawn


def axis_label(table: LayerTable, metric: str) -> str:
    return with_unit(display_name(metric), captions([table]).get(metric, Caption()).unit)


def with_unit(name: str, unit: Any) -> str:
    """The name with its unit; on two lines if one would be longer than a panel is high."""
    if not unit:
        return name
    unit = f"({shorten(str(unit))})"
    return f"{name}\n{unit}" if len(name) + len(unit) > LONGEST_AXIS_LABEL else f"{name} {unit}"


def display_name(name: str) -> str:
    return shorten(name.replace("_", " "))


def shorten(text: str, most: int = 40) -> str:
    """The text cut to a length, without leading underscores: these would hide a label from matplotlib's legend."""
    text = text.lstrip("_")
    return text if len(text) <= most else text[: most - 1] + "…"

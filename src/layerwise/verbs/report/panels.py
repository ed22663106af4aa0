"""Several panels in one picture, and the entropy of power-law spectra by its order."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from layerwise.verbs.report.drawing import ordered_colour
from layerwise.verbs.report.figures import COLUMN_WIDTH, STYLE, figure_axes

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

"""The summary of a table: one line per curve, aligned, with a small picture."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from layerwise.core.display import printable
from layerwise.runs.scores import LayerScore, curves

BARS = "▁▂▃▄▅▆▇█"
SUMMARY_COLUMNS = (
    "model",
    "condition",
    "metric",
    "rows",
    "tokens",
    "pooling",
    "transform",
    "norm",
    "first",
    "last",
    "normed",
    "least",
    "most",
    "by layer",
)


def summary(scores: Iterable[LayerScore]) -> str:
    """One line a curve: where it starts and ends, the normed last layer, its least and most, and a small picture."""
    lines: list[tuple[str, ...]] = [SUMMARY_COLUMNS, *summary_lines(scores)]
    shown = [i for i in range(len(SUMMARY_COLUMNS)) if any(line[i] for line in lines[1:])]  # no empty columns
    return "\n".join(aligned([tuple(line[i] for i in shown) for line in lines]))


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines of cells in columns as wide as their widest; control characters are written out."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary_lines(scores: Iterable[LayerScore]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    lines_of = curves(scores)
    for (*setting, norm), curve in lines_of.items():
        if norm == "normed" and len(curve) == 1 and (*setting, "raw") in lines_of:
            continue  # the normed last layer stands in the raw curve's line
        model, *words = setting
        normed = lines_of.get((*setting, "normed"), [])
        known = [s for s in curve if s.value == s.value]
        least, most = (f"at {f(known, key=lambda s: s.value).layer}" if known else "" for f in (min, max))
        ends = [f"{s.value:.4g}" for s in (curve[0], curve[-1], *normed[-1:])] + [""] * (not normed)
        picture = sparkline([s.value for s in curve])
        lines.append((Path(model).name, *words, norm, *ends, least, most, picture))
    return lines


def sparkline(values: list[float]) -> str:
    """A line of small bars, lowest to highest; a dot where a value is undefined."""
    known = [v for v in values if math.isfinite(v)]
    low, span = min(known, default=0.0), (max(known, default=0.0) - min(known, default=0.0)) or 1.0
    return "".join(BARS[round((v - low) / span * (len(BARS) - 1))] if math.isfinite(v) else "·" for v in values)

"""The summary of a table: one line per curve within 80 columns, with a small picture, under a caption."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from layerwise.core.columns import GAP, WIDTH, in_columns
from layerwise.core.display import printable
from layerwise.runs.scores import LayerScore, curves_with_ends

BARS = "▁▂▃▄▅▆▇█"
SETTINGS = ("model", "condition", "metric", "rows", "tokens", "pooling", "transform", "point", "norm")
NARROWEST_PICTURE, NARROWEST_NAME = 8, 16
# How a setting that all curves share is said in the caption.
SAID = {"rows": "rows {}", "tokens": "{} tokens", "pooling": "{} pooling", "norm": "norm {}"}
BLOCK_OUTPUT = "block output"  # the point of a layer's own row, where other points are shown
UNDEFINED = "n/a"  # instead of a value
NOT_USED = "-"  # such as the pooling of a metric that looks at tokens


@dataclass(frozen=True)
class Curve:
    """One line of a summary: the settings that all its rows share, and the rows by layer."""

    settings: tuple[str, ...]  # in the order of SETTINGS
    rows: Sequence[LayerScore]
    normed: LayerScore | None  # the normed last layer of a raw curve

    @property
    def extremes(self) -> tuple[str, str]:
        """The layers with the smallest and the largest value."""
        known = [s for s in self.rows if s.value == s.value]
        least, most = (str(f(known, key=lambda s: s.value).layer) if known else "" for f in (min, max))
        return least, most


@dataclass(frozen=True)
class Shown:
    """A summary as it is shown: a caption, the names of the columns, and the cells of each line."""

    caption: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def curve_lines(scores: Iterable[LayerScore]) -> list[Curve]:
    """The curves of a table; the normed last layer is part of the raw curve's line."""
    found, lines = list(curves_with_ends(scores)), []
    has_points = any(rows[0].point for _, rows, _ in found)
    for (model, *words, point, norm), rows, normed in found:
        place = point or (BLOCK_OUTPUT if has_points else "")
        lines.append(Curve((Path(model).name, *words, place, norm), rows, normed))
    metrics = list(dict.fromkeys(line.rows[0].metric for line in lines))
    return sorted(lines, key=lambda line: metrics.index(line.rows[0].metric)) if has_points else lines


def shown(scores: Sequence[LayerScore], run: Mapping[str, Any] | None = None, width: int | None = None) -> Shown:
    """What is shown of a table: settings that differ are columns, those that do not are said once in the caption.

    With a `width` in characters, the picture is made narrower and the first layer is left out where that is needed.
    """
    curves_of = curve_lines(scores)
    constant, differing = split_settings(curves_of)
    tasks = all(curve.settings[SETTINGS.index("rows")] == NOT_USED for curve in curves_of)
    columns = {"task" if tasks and name == "metric" else name: cells for name, cells in differing.items()}
    names = list(columns)
    columns["first"] = [number(curve.rows[0].value) for curve in curves_of]
    columns["last"] = [with_interval(curve.rows[-1]) for curve in curves_of]
    columns["normed"] = [with_interval(curve.normed) if curve.normed else "" for curve in curves_of]
    columns["min at"], columns["max at"] = ([curve.extremes[i] for curve in curves_of] for i in (0, 1))
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    pictures = [[s.value for s in curve.rows] for curve in curves_of]
    columns = with_pictures(columns, pictures, width)
    if width is not None:
        columns = shortened(columns, names, width)
    caption = (facts_line(scores, run or {}, constant), settings_line(constant, columns))
    return Shown(caption, tuple(columns), tuple(zip(*columns.values(), strict=True)))


def split_settings(lines: Sequence[Curve]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The settings that all curves share, and the columns of the others; the metric is always a column."""
    constant, differing = dict[str, str](), dict[str, list[str]]()
    for place, name in enumerate(SETTINGS):
        cells = [curve.settings[place] for curve in lines]
        used = {cell for cell in cells if cell != NOT_USED}
        if name != "metric" and len(used) <= 1:
            constant[name] = used.pop() if used else ""
        else:
            differing[name] = cells
    return constant, differing


def facts_line(scores: Sequence[LayerScore], run: Mapping[str, Any], constant: Mapping[str, str]) -> str:
    """Which model, how many texts and layers: `gte-small, 400 texts (12 cut), 13 layers`."""
    words = [constant.get("model", ""), data_words(run)]
    if (tasks := run.get("tasks")) and run.get("kind") == "eval":
        words.append(counted(len(tasks), "task"))
    words.append(counted(len({s.layer for s in scores}), "layer"))
    return ", ".join(filter(None, words))


def data_words(run: Mapping[str, Any]) -> str:
    """How many examples a scan read, and what happened to some: `400 texts (12 cut)`."""
    parts = [part.get("data") or {} for part in run.get("runs") or [run]]
    facts = parts[0] if all(part.get("fingerprint") == parts[0].get("fingerprint") for part in parts) else {}
    if "prompts" not in facts:
        return ""
    more = [
        f"{count:,} {what}"
        for count, what in ((facts.get("cut", 0), "cut"), (len(facts.get("missing", ())), "left out"))
        if count
    ]
    return counted(facts["prompts"], facts.get("unit", "example")) + (f" ({', '.join(more)})" if more else "")


def counted(number: int, what: str) -> str:
    """`1 text`, `1,200 texts`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def settings_line(constant: Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> str:
    """The settings that all lines share, and what ± means where it occurs."""
    shared = [SAID.get(name, "{}").format(word) for name, word in constant.items() if word and name != "model"]
    interval = "±: 95 % interval" if any("±" in cell for cell in columns.get("last", ())) else ""
    undefined = f"{UNDEFINED}: undefined" if any(UNDEFINED in cells for cells in columns.values()) else ""
    return "; ".join(filter(None, [", ".join(shared), interval, undefined]))


def number(value: float) -> str:
    """Four digits of a value."""
    return UNDEFINED if math.isnan(value) else f"{value:.4g}"


def with_interval(score: LayerScore) -> str:
    """`0.732 ±0.011`: the value, rounded as its 95 % interval allows; without an interval, four digits.

    An interval need not be symmetric: the larger of its two sides is shown, and the table holds both ends.
    """
    value, half = score.value, max(score.ci_high - score.value, score.value - score.ci_low)
    if not (math.isfinite(half) and half > 0 and math.isfinite(value)):
        return number(value)
    if half < max(abs(value) * 1e-4, 1e-4) or half >= 1e5:
        return f"{value:.4g} ±{half:.0e}"
    place = math.floor(math.log10(half))
    digits = max(0, -place + (half / 10**place < 3))  # two digits of 0.012, one of 0.034
    return f"{value:.{digits}f} ±{half:.{digits}f}"


def with_pictures(
    columns: Mapping[str, list[str]], pictures: Sequence[Sequence[float]], width: int | None
) -> dict[str, list[str]]:
    """The columns with a picture of each curve behind them, as wide as there is room for."""
    longest = max(map(len, pictures), default=0)
    tried = dict(columns)
    for left_out in ((), ("first",)):
        tried = {name: cells for name, cells in columns.items() if name not in left_out}
        room = longest if width is None else min(longest, width - table_width(tried) - len(GAP))
        if room >= min(longest, NARROWEST_PICTURE):
            drawn = [sparkline(values, room * len(values) // max(1, longest)) for values in pictures]
            return {**tried, "by layer": drawn}
    return tried


def shortened(columns: Mapping[str, list[str]], names: Iterable[str], width: int) -> dict[str, list[str]]:
    """The columns, with long names cut in their middle where the table would be wider than `width`."""
    made = dict(columns)
    for name in sorted((n for n in names if n in made), key=lambda n: -cell_width(n, made[n])):
        if (over := table_width(made) - width) > 0:
            room = max(NARROWEST_NAME, cell_width(name, made[name]) - over)
            made[name] = [cut_in_the_middle(cell, room) for cell in made[name]]
    return made


def cut_in_the_middle(name: str, room: int) -> str:
    """The name in at most so many characters: `AmazonCounter…sification`."""
    if len(name) <= room:
        return name
    kept = room - 1
    return f"{name[: kept - kept // 2]}…{name[len(name) - kept // 2 :]}"


def cell_width(name: str, cells: Iterable[str]) -> int:
    return max(len(printable(cell)) for cell in (name, *cells))


def table_width(columns: Mapping[str, Sequence[str]]) -> int:
    return sum(cell_width(name, cells) for name, cells in columns.items()) + len(GAP) * (len(columns) - 1)


def summary(scores: Sequence[LayerScore], run: Mapping[str, Any] | None = None) -> str:
    """The caption and one line per curve, within 80 columns."""
    made = shown(scores, run, WIDTH)
    caption = [part for line in made.caption for part in wrap(printable(line), WIDTH)]
    return "\n".join([*caption, *in_columns([made.columns, *made.lines])])


def sparkline(values: Sequence[float], width: int | None = None) -> str:
    """A sparkline of small bars; a dot marks an undefined value.

    With a `width`, at most so many bars: each is the mean of neighbouring layers.
    """
    if width is not None and 0 < width < len(values):
        edges = [place * len(values) // width for place in range(width + 1)]
        values = [mean_of(values[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    finite = [v for v in values if math.isfinite(v)]
    low, span = min(finite, default=0.0), (max(finite, default=0.0) - min(finite, default=0.0)) or 1.0
    return "".join(BARS[round((v - low) / span * (len(BARS) - 1))] if math.isfinite(v) else "·" for v in values)


def mean_of(values: Sequence[float]) -> float:
    known = [v for v in values if math.isfinite(v)]
    return sum(known) / len(known) if known else math.nan


def format_bytes(n: float) -> str:
    """A number of bytes in the largest fitting unit."""
    for unit in ("B", "KB", "MB"):
        if n < 1000:
            return f"{n:.0f} {unit}"
        n /= 1000
    return f"{n:.2f} GB"

"""The summary of a page: one row per model with its best and last layer, and every metric in numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.runs.folder import Run
from layerwise.runs.scores import LayerScore, curves_with_ends, same_columns
from layerwise.runs.summary import sparkline
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.markup import table
from layerwise.verbs.report.repeat_commands import first_run, format_counts

SCORES_NOTE = "gain: best minus last layer. The best layer was found with these scores, so new data will show less"


@dataclass(frozen=True)
class Mean:
    """A mean over tasks, with its 95 % interval where every task has one."""

    value: float
    low: float = math.nan
    high: float = math.nan

    @classmethod
    def of(cls, rows: Sequence[LayerScore]) -> "Mean":
        value = sum(s.value for s in rows) / len(rows)
        # Tasks are independent data sets: half-widths add in quadrature, on each side.
        low = value - math.hypot(*(s.value - s.ci_low for s in rows)) / len(rows)
        high = value + math.hypot(*(s.ci_high - s.value for s in rows)) / len(rows)
        return cls(value, low, high)

    def __str__(self) -> str:
        interval = f" [{self.low:.1f}, {self.high:.1f}]" if math.isfinite(self.low) else ""
        return f"{self.value:.1f}{interval}"


def summary_section(runs: Sequence[Run], labels: Sequence[str]) -> str:
    rows = {label: overview(label, runs, labels) for label in dict.fromkeys(labels)}
    head = [name for name in next(iter(rows.values())) if any(row[name] for row in rows.values())]
    caption = "Models in this report" + (f". {SCORES_NOTE}" if "gain" in head else "")
    models = table(
        head,
        [[row[name] for name in head] for row in rows.values()],
        words=("model", "family", "data", "examples"),
        caption=caption,
        stacked=True,
    )
    return models + numbers(runs, labels)


def overview(label: str, runs: Sequence[Run], labels: Sequence[str]) -> dict[str, str]:
    """One row per model: its best layer against its last where it was scored, what it is, and what it was run on."""
    mine = [run for run, name in zip(runs, labels, strict=True) if name == label]
    model: dict[str, Any] = {}
    name = count = ""
    for run in reversed(mine):
        record = first_run(run.table)
        model |= record.get("model", {})
        data = record.get("data", {})
        name = data.get("name", "").rpartition("/")[2] or name
        count = (format_counts(record) if data else "") or count
    scored = next((run.table for run in mine if run.kind == "eval"), None)
    best, last = best_and_last(scored) if scored else (None, None)
    return {
        "model": label,
        "best layer": f"{best[0]} ({best[1]})" if best else "",
        "last layer": str(last) if last else "",
        "gain": f"{best[1].value - last.value:+.1f}" if best and last else "",
        "tasks": str(len({s.metric for s in scored})) if scored else "",
        "family": str(model.get("family", "")),
        "layers": str(model.get("depth", "") or max((s.layer for run in mine for s in run.table), default="")),
        "width": str(model.get("width", "")),
        "data": name,
        "examples": count,
    }


def best_and_last(scored: LayerTable) -> tuple[tuple[int, Mean] | None, Mean | None]:
    """The layer with the best mean score, and the mean score of the model's usual output."""
    curves, ends = scored.main_curves(), list(scored.outputs().values())
    points: dict[int, list[LayerScore]] = {}
    for s in (s for curve in curves.values() for s in curve if s.value == s.value):
        points.setdefault(s.layer, []).append(s)
    means = {layer: Mean.of(rows) for layer, rows in points.items() if len(rows) == len(curves)}
    if not means:
        return None, None
    best = max(means, key=lambda layer: means[layer].value)
    is_known = all(s.value == s.value for s in ends) and len({s.norm for s in ends}) == 1
    return (best, means[best]), Mean.of(ends) if is_known else means[max(means)]


def numbers(runs: Sequence[Run], labels: Sequence[str]) -> str:
    """Every metric and task in the rows and tokens of its main curve, with 95 % intervals, as a collapsible table."""
    lines = [line for run, label in zip(runs, labels, strict=True) for line in lines_of(run, label)]
    if not lines:
        return ""
    head = [name for name in lines[0] if any(line[name] for line in lines)]
    rows = [[line[name] for name in head] for line in lines]
    words = ("model", "metric", "rows", "tokens", "pooling", "norm", "how")
    caption = "Every metric and task by its main curve; 95 % intervals in brackets"
    return (
        f"<details><summary>All metrics as a table</summary>{table(head, rows, words=words, caption=caption)}</details>"
    )


def lines_of(run: Run, label: str) -> list[dict[str, str]]:
    """One line per curve of a scan or an eval: its ends, its minimum and maximum."""
    if run.kind == "stress":
        return []
    mains = {metric: curve[0] for metric, curve in run.table.main_curves().items()}
    chosen = [s for s in run.table if same_columns(s, mains[s.metric], ("rows", "tokens", "point"))]
    found = []
    for (_, _, metric, rows, tokens, pooling, how, _, norm), curve, normed in curves_with_ends(chosen):
        known = [s for s in curve if math.isfinite(s.value)]
        least, most = (f(known, key=lambda s: s.value) for f in (min, max)) if known else (None, None)
        found.append(
            {
                "model": label,
                "metric": metric,
                "rows": "" if rows == "-" else rows,
                "tokens": tokens,
                "pooling": "" if pooling == "-" else pooling,
                "how": how,
                "norm": norm,
                "n": f"{curve[-1].n:,}" if curve[-1].n else "",
                "first layer": with_interval(curve[0]),
                "last layer": with_interval(curve[-1]),
                "last, normed": with_interval(normed) if normed else "",
                "minimum": f"{least.value:.4g} at {least.layer}" if least else "",
                "maximum": f"{most.value:.4g} at {most.layer}" if most else "",
                "by layer": sparkline([s.value for s in curve]),
            }
        )
    return found


def with_interval(s: LayerScore) -> str:
    interval = f" [{s.ci_low:.4g}, {s.ci_high:.4g}]" if math.isfinite(s.ci_low) else ""
    return f"{s.value:.4g}{interval}"

"""The data of a page, ready for JSON: models, curves, scores, correlations and trade-offs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from layerwise.core.files import folder_name
from layerwise.models.families.family import PARALLEL_NOTE, are_parallel, is_stream
from layerwise.runs.folder import Run
from layerwise.runs.labels import model_labels, training_step
from layerwise.runs.scores import LayerScore, curves_with_ends
from layerwise.runs.summary import BLOCK_OUTPUT
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.captions import captions
from layerwise.verbs.report.drawing import colours, is_log, place_of_ring

DIGITS = 5  # more than a chart can show, at half the size
SETTING = ("metric", "rows", "tokens", "pooling", "norm")  # of the curves that one picture shows


def run_labels(runs: Sequence[Run]) -> list[str]:
    """The model's short name; if a model has several runs of one kind, also the folder name or number."""
    models = model_labels([run.table for run in runs])
    pairs = list(zip(models, (run.kind for run in runs), strict=True))
    counts = Counter(pairs)
    folders = [folder_name(run.name) or str(folder) for folder, run in enumerate(runs, start=1)]
    labels = [
        f"{label} · {folder}" if counts[label, kind] > 1 else label
        for (label, kind), folder in zip(pairs, folders, strict=True)
    ]
    label_counts = Counter(zip(labels, (run.kind for run in runs), strict=True))  # two folders may have the same name
    return [
        f"{label} · {number}" if label_counts[label, run.kind] > 1 else label
        for number, (label, run) in enumerate(zip(labels, runs, strict=True), start=1)
    ]


def page_data(
    runs: Sequence[Run],
    correlations: Iterable[tuple[int, Any]] = (),
    comparison: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that the page's script draws. `correlations` pairs a run's number with a data frame of its
    correlations; `comparison` is a comparison as plain data.
    """
    labels = run_labels(runs)
    models = list(dict.fromkeys(labels))
    index = {label: number for number, label in enumerate(models)}
    metric_info = captions(run.table for run in runs)
    lines: dict[str, list[Any]] = {"scan": [], "stress": [], "eval": [], "inside": []}
    for run, label in zip(runs, labels, strict=True):
        drawn = series(run.table, index[label])
        lines.get(run.kind, lines["scan"]).extend(line for line in drawn if not line["point"])
        if any(line["point"] for line in drawn):
            lines["inside"].extend(inside_lines(drawn))
    mark_scales(lines["scan"], by=SETTING)
    mark_scales(lines["inside"], by=(*SETTING, "model"))
    mark_scales(lines["stress"], by=(*SETTING, "condition", "model"))
    names = {s["metric"] for kind in ("scan", "stress") for s in lines[kind]}
    return {
        "models": [model_entry(label, full_name(runs[labels.index(label)].table)) for label in models],
        "metrics": {
            name: {"unit": caption.unit, "larger": caption.larger_means}
            for name, caption in metric_info.items()
            if name in names
        },
        **lines,
        "correlation": [correlation_data(frame, index[labels[number]]) for number, frame in correlations],
        "tradeoff": [
            tradeoff_data(run.tradeoff, index[label])
            for run, label in zip(runs, labels, strict=True)
            if run.tradeoff.get("layers")
        ],
        "pairs": [pair_data(pair) for pair in (comparison or {"pairs": []})["pairs"]],
        "colours": colours(),
    }


def model_entry(label: str, full: str) -> dict[str, Any]:
    step = training_step(label)
    return {"label": label, "full": full} | ({"step": step} if step is not None else {})


def full_name(table: LayerTable) -> str:
    return next((s.model for s in table.scores), "no model")


def series(table: LayerTable, model: int) -> list[dict[str, Any]]:
    """One line per curve; the normed last layer is a single point, kept with the raw curve it belongs to."""
    lines = []
    example = (table.run.get("data") or {}).get("unit", "text")
    for (*_, recipe_text, place, norm), curve, normed in curves_with_ends(table):
        first, last = curve[0], curve[-1]
        line: dict[str, Any] = {
            "model": model,
            "metric": first.metric,
            "rows": first.rows,
            "tokens": f"{first.tokens} + {recipe_text}" if recipe_text else first.tokens,
            "pooling": first.pooling,
            "point": place,
            "norm": norm,
            "depth": round(last.layer / last.depth) if last.depth else max(1, last.layer),
            "layers": [s.layer for s in curve],
            "n": last.n,
            "example": example,
            "value": [rounded_or_none(s.value) for s in curve],
        }
        if any(math.isfinite(s.ci_low) for s in curve):
            line |= {
                "low": [rounded_or_none(s.ci_low) for s in curve],
                "high": [rounded_or_none(s.ci_high) for s in curve],
            }
        if any(s.skipped for s in curve):
            line["skipped"] = [s.skipped for s in curve]
        if normed is not None:
            line["normed"] = point(normed)
        if first.condition:
            line |= {"condition": first.condition, "level": rounded_or_none(first.level)}
        if first.rows == "-":
            line["task"] = first.data
        lines.append(line)
    return lines


def inside_lines(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the pictures of a block, with the name of each and whether it is the residual stream.

    They are copies, since these pictures have their own scales.
    """
    note = PARALLEL_NOTE if are_parallel({line["point"] for line in lines}) else ""
    return [
        {**line, "name": line["point"] or BLOCK_OUTPUT, "stream": is_stream(line["point"]), "note": note}
        for line in lines
    ]


def mark_scales(lines: Iterable[dict[str, Any]], *, by: Sequence[str]) -> None:
    """Adds the scale to the lines that share a picture: `log`, and `edge` for a ring outside the picture."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(tuple(line.get(name) for name in by), []).append(line)
    for group in groups.values():
        values = [value for line in group for value in line["value"] if value is not None]
        log = is_log(values)
        for line in group:
            line["log"] = log
            ring = line.get("normed", {}).get("value")
            if ring is not None and (place := place_of_ring(values, ring, log=log)) != "inside":
                line["normed"]["edge"] = place


def point(s: LayerScore) -> dict[str, Any]:
    return {
        "layer": s.layer,
        "value": rounded_or_none(s.value),
        "low": rounded_or_none(s.ci_low),
        "high": rounded_or_none(s.ci_high),
    }


def rounded_or_none(value: float) -> float | None:
    """A number rounded for JSON; None if it is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def correlation_data(frame: Any, model: int) -> dict[str, Any]:
    """The rows of `correlate` for one model."""
    names = [c for c in frame.columns if frame[c].dtype.kind == "f"]
    rows = [
        {k: rounded_or_none(float(v)) if k in names else v for k, v in record.items()}
        for record in frame.to_dict(orient="records")
    ]
    return {"model": model, "rows": rows}


def tradeoff_data(record: Mapping[str, Any], model: int) -> dict[str, Any]:
    """The front of one model: one row per layer with score, latency, parameters, memory and pareto, and their units."""
    names = ("layer", "score", "latency", "parameters", "memory", "pareto")
    rows = [{name: finite_or_none(row.get(name)) for name in names} for row in record["layers"]]
    return {"model": model, "units": dict(record.get("units", {})), "rows": rows}


def pair_data(pair: Mapping[str, Any]) -> dict[str, Any]:
    """A pair of a comparison: one line per metric and setting with the difference by layer, and CKA."""
    names = ("condition", "metric", "rows", "tokens", "pooling", "norm")
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in (row for row in pair["changes"] if not row["point"]):
        setting = {name: row[name] for name in names}
        if row["transform"]:  # as in the other pictures: each map has a curve of its own
            setting["tokens"] = f"{row['tokens']} + {row['transform']}"
        line = lines.setdefault(tuple(setting.values()), setting | {"paired": row["paired"], "depth": 1, "layers": []})
        line["layers"].append(row["layer"])
        line["depth"] = round(row["layer"] / row["depth"]) if row["depth"] else line["depth"]
        for name, column in (("value", "difference"), ("low", "ci_low"), ("high", "ci_high")):
            line.setdefault(name, []).append(None if row[column] is None else rounded_or_none(row[column]))
    curves = [line for line in lines.values() if len(line["layers"]) > 1 and not line["condition"]]
    curves = [line for line in curves if any(value is not None for value in line["value"])]
    name = f"{pair['first']} → {pair['second']}"
    return {"name": name, "first": pair["first"], "second": pair["second"], "changes": curves, "cka": pair["cka"]}

"""Quantiles over many models: five curves in place of thousands."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerwise.core.display import redact_value
from layerwise.runs.folder import Run
from layerwise.runs.scores import COLUMNS, LayerScore
from layerwise.runs.table import LayerTable, arrow_columns, arrow_table, read_rows

MAX_MODELS = 100  # curves in one chart; nobody can distinguish more
QUANTILES = {"lowest": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "highest": 1.0}
MODEL = ("model", "revision", "model_hash", "dtype")  # columns that tell models apart
MEASURED = ("layer", "depth", "value", "ci_low", "ci_high", "n", "skipped", "missing", "note")
IGNORED = ("max_length", "settings_hash")  # may differ from model to model
STEPS = 20  # models of different depth are compared at every twentieth of their depth


def runs_by_model(source: Run | LayerTable | str | Path, where: Mapping[str, Any] | None = None) -> list[Run]:
    """The runs of a source, one per model; quantiles over the models if there are more than a page can show.

    Args:
        source: a run folder or url, a table, or a run.
        where: columns and the values that rows must have; by default all rows.
    """
    if isinstance(source, Run | LayerTable):
        run = Run.open(source, where)
        parts = run.split_by_model()
        if len(parts) <= MAX_MODELS:
            return parts
        rows, record, name = arrow_table(run.table), run.table.run, run.name
    else:
        rows, record, path = read_rows(source, where)
        rows, name = arrow_columns(rows, path), redact_value(str(source))
        if rows.select(MODEL).group_by(list(MODEL)).aggregate([]).num_rows <= MAX_MODELS:
            return Run.open(source, where).split_by_model()
    return [Run(table, name=name) for table in quantile_tables(rows, record)]


def quantile_tables(rows: Any, record: Mapping[str, Any]) -> list[LayerTable]:
    """One table per quantile over the models of a table of scores.

    If all models have the same depth, a layer is a layer. Otherwise curves are interpolated at every twentieth of the
    depth, and layer k stands for k twentieths.

    Args:
        rows: an Arrow table of scores.
        record: the record of the joined runs.
    """
    import numpy as np

    frame = rows.to_pandas(strings_to_categorical=True)
    frame["number"] = frame.groupby(list(MODEL), observed=True).ngroup()
    depth_of_model = frame.groupby("number").layer.max()
    settings = [name for name in COLUMNS if name not in (*MODEL, *MEASURED, *IGNORED)]
    varying = [name for name in settings if frame[name].nunique(dropna=False) > 1]
    found: dict[str, list[LayerScore]] = {name: [] for name in QUANTILES}
    groups = frame.groupby(varying or ["metric"], sort=False, dropna=False, observed=True)
    for _, group in groups:
        values, layers, depths = by_layer(group, interpolate=depth_of_model.nunique() > 1)
        common = {name: group[name].iloc[0] for name in settings} | {"n": int(group.n.min())}
        for name, share in QUANTILES.items():
            with warnings.catch_warnings(action="ignore"):  # a layer that is undefined for every model
                curve = np.nanquantile(values, share, axis=0)
            found[name] += [
                score(common, f"{name} of {len(depth_of_model):,} models", int(layer), float(depth), float(value))
                for layer, depth, value in zip(layers, depths, curve, strict=True)
            ]
    (first, *_) = record.get("runs") or [{}]
    data = {"data": first["data"]} if frame.data_hash.nunique() == 1 and "data" in first else {}
    run = {"kind": "scan", "models": len(depth_of_model), **data}
    return [LayerTable(tuple(scores), run) for scores in found.values()]


def score(common: Mapping[str, Any], model: str, layer: int, depth: float, value: float) -> LayerScore:
    named = {"model": model, "revision": "", "layer": layer, "depth": depth, "value": value}
    return LayerScore(**{**common, **named, "ci_low": math.nan, "ci_high": math.nan})


def by_layer(group: Any, *, interpolate: bool) -> tuple[Any, Any, Any]:
    """The values of one setting as models x layers, the layers, and their depths."""
    import numpy as np

    if not interpolate:
        wide = group.pivot(index="number", columns="layer", values="value")
        return wide.to_numpy(), wide.columns, group.groupby("layer").depth.first()
    curves = [curve for _, curve in group.sort_values("depth").groupby("number")]
    # A setting of a single layer, such as the last one after the final norm, stays a single layer.
    steps = np.arange(STEPS + 1) if any(len(curve) > 1 for curve in curves) else np.array([STEPS])
    values = [np.interp(steps / STEPS, curve.depth.to_numpy(), curve.value.to_numpy()) for curve in curves]
    return np.stack(values), steps, steps / STEPS

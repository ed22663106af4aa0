"""Which metrics correlate with which tasks across layers: descriptive correlations, and a test on second
differences."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerwise.core.errors import InputError
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.curves import Curve

FEW_LAYERS = 10
METRIC_COLUMNS = ["metric", "rows", "tokens", "pooling"]  # columns that identify a curve of a scan
TASK_COLUMNS = ["metric", "tokens", "pooling", "transform"]  # columns that identify a curve of an eval
VALUE_COLUMNS = {"layer", "depth", "value", "n", "skipped", "ci_low", "ci_high", "missing", "note", "level"}


def correlate_runs(
    scan: Run | LayerTable | str | Path, evaluation: Run | LayerTable | str | Path, *, norm: str = "raw"
) -> pd.DataFrame:
    """The correlations of two runs; an error names their folders."""
    runs = [Run.open(scan), Run.open(evaluation)]
    try:
        return correlations(runs[0].table, runs[1].table, norm=norm)
    except InputError as error:
        folders = [run.location for run in runs if run.folder is not None]
        raise InputError(f"{' and '.join(folders)}: {error}" if folders else str(error)) from None


def correlations(scan: LayerTable, evaluation: LayerTable, *, norm: str = "raw") -> pd.DataFrame:
    """One row per metric and task: their correlation across layers, and a test of their bends.

    spearman, kendall and distance are descriptive: curves that both rise with depth correlate even if unrelated, so
    they have no p-value. `*_bends` correlates the bends of the curves (their second differences),
    and `*_bends_p` is a p-value that stays valid for trends and random walks (studies/correlation).

    A metric is compared with scores of the same norm and tokens, and of the same pooling if it has one; a token-level
    metric has pooling "-" and is compared with every pooling. Warns about curves without a match.

    Args:
        scan: the table of a scan.
        evaluation: the table of an eval of the same model.
        norm: raw or normed.

    Returns:
        Columns metric, rows, tokens, pooling, task, task_pooling, transform, layers and the numbers above.

    Raises:
        InputError: the tables are of different models or kinds, or have fewer than four layers in common.
    """
    require_one_model(scan, evaluation)
    metrics, tasks = curves(scan, norm, METRIC_COLUMNS), curves(evaluation, norm, TASK_COLUMNS)
    cache: dict[tuple[object, ...], Curve] = {}
    rows, unmatched = [], {*metrics, *tasks}
    for metric_key, x in metrics.items():
        for task_key, y in tasks.items():
            (metric, treatment, tokens, pooling), (task, task_tokens, task_pooling, transform) = metric_key, task_key
            if tokens != task_tokens or pooling not in ("-", task_pooling):
                continue
            layers = sorted(set(x.dropna().index) & set(y.dropna().index))
            if len(layers) < 4:
                continue
            unmatched -= {metric_key, task_key}
            metric_curve, task_curve = (
                cached_curve(cache, name, curve, layers) for name, curve in ((metric_key, x), (task_key, y))
            )
            columns = {
                "metric": metric,
                "rows": treatment,
                "tokens": tokens,
                "pooling": pooling,
                "task": task,
                "task_pooling": task_pooling,
                "transform": transform,
            }
            rows.append(columns | {"layers": len(layers)} | metric_curve.correlations(task_curve))
    if not rows:
        raise InputError(
            f"the two tables have fewer than four layers in common with norm {norm!r}, equal tokens and equal pooling: "
            f"the scan has {format_settings(metrics, 2, 3)}, the eval {format_settings(tasks, 1, 2)}"
        )
    table = pd.DataFrame(rows)
    warn_unmatched(unmatched, int(table.layers.min()))
    return table


def warn_unmatched(unmatched: set[tuple[str, ...]], min_layers: int) -> None:
    if unmatched:
        names = ", ".join(sorted(" ".join(name) for name in unmatched)[:4])
        warnings.warn(
            f"{len(unmatched)} curves have no match with equal tokens and pooling and at least four common layers, "
            f"and are left out: {names}{', ...' if len(unmatched) > 4 else ''}",
            stacklevel=3,
        )
    if min_layers < FEW_LAYERS:
        warnings.warn(f"only {min_layers} layers in common: these correlations are unreliable", stacklevel=3)


def format_settings(curve_keys: dict[tuple[str, ...], Any], *indices: int) -> str:
    """The tokens and poolings of curves, for a message."""
    return (
        " or ".join(sorted({"/".join(name[i] for i in indices) for name in curve_keys})) or "no curves with this norm"
    )


def cached_curve(cache: dict[tuple[object, ...], Curve], name: tuple[str, ...], curve: Any, layers: list[int]) -> Curve:
    """The curve over these layers, from a cache."""
    key = (len(name), name, tuple(layers))
    if key not in cache:
        evenly_spaced = len(set(np.diff(layers))) == 1
        cache[key] = Curve(curve.loc[layers].to_numpy(float), evenly_spaced=evenly_spaced)
    return cache[key]


def require_one_model(scan: LayerTable, evaluation: LayerTable) -> None:
    """Raises unless the tables are a scan and an eval of the same model."""
    kinds = (scan.kind or "scan", evaluation.kind or "eval")
    if kinds != ("scan", "eval"):
        raise InputError(f"expected a scan and then an eval, got {kinds[0]} and {kinds[1]}")
    scan_model, evaluation_model = scan.model, evaluation.model
    if scan_model is not None and evaluation_model is not None and not scan_model.same_as(evaluation_model):
        raise InputError(
            f"the scan is of {scan_model.name}, but the eval is of {evaluation_model.name}: "
            "their weights or tokenizers differ"
        )
    hashes = {row.model_hash for table in (scan, evaluation) for row in table if row.model_hash}
    if len(hashes) > 1:
        raise InputError("the rows belong to different models: their weights or tokenizers differ (column model_hash)")


def curves(table: LayerTable, norm: str, by: list[str]) -> dict[tuple[str, ...], "pd.Series[Any]"]:
    """Values by layer for each setting; raises if a setting has several values for one layer."""
    frame = table.to_pandas()
    frame = frame[(frame.norm == norm) & (frame.point == "")]
    by_key = {}
    for name, part in frame.groupby(by):
        if part.layer.duplicated().any():
            differing = [c for c in part.columns if c not in VALUE_COLUMNS and part[c].nunique(dropna=False) > 1]
            raise InputError(
                f"{' '.join(map(str, name))} has several values for one layer, which differ in "
                f"{', '.join(differing) or 'nothing but the value'}; select one of them with table.where(...)"
            )
        by_key[name] = part.set_index("layer").value.sort_index()
    return by_key

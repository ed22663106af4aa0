"""Which metrics correlate with which tasks across layers: descriptive correlations, and a test on second
differences."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from layerwise.core.errors import InputError
from layerwise.downstream.curves import Curve
from layerwise.runs.table import LayerTable

FEW_LAYERS = 10
METRIC = ["metric", "rows", "tokens", "pooling"]  # columns that identify a curve of a scan
TASK = ["metric", "tokens", "pooling", "transform"]  # columns that identify a curve of an eval
NUMBERS = {"layer", "depth", "value", "n", "skipped", "ci_low", "ci_high", "missing", "note", "level"}


def correlations(scan: LayerTable, scored: LayerTable, *, norm: str = "raw") -> pd.DataFrame:
    """One row per metric and task: their correlation across layers, and a test of their bends.

    spearman, kendall and distance are descriptive: curves that both rise with depth correlate even if unrelated, so
    they have no p-value. `*_bends` correlates the bends of the curves (their second differences),
    and `*_bends_p` is a p-value that stays valid for trends and random walks (studies/correlation).

    A metric is compared with scores of the same norm and tokens, and of the same pooling if it has one; a token-level
    metric has pooling "-" and is compared with every pooling. Warns about curves without a match.

    Args:
        scan: the table of a scan.
        scored: the table of an eval of the same model.
        norm: raw or normed.

    Returns:
        Columns metric, rows, tokens, pooling, task, task_pooling, transform, layers and the numbers above.

    Raises:
        InputError: the tables are of different models or kinds, or have fewer than four layers in common.
    """
    require_one_model(scan, scored)
    metrics, tasks = curves(scan, norm, METRIC), curves(scored, norm, TASK)
    made: dict[tuple[object, ...], Curve] = {}
    rows, alone = [], {*metrics, *tasks}
    for of_metric, x in metrics.items():
        for of_task, y in tasks.items():
            (metric, treatment, tokens, pooling), (task, task_tokens, task_pooling, transform) = of_metric, of_task
            if tokens != task_tokens or pooling not in ("-", task_pooling):
                continue
            layers = sorted(set(x.dropna().index) & set(y.dropna().index))
            if len(layers) < 4:
                continue
            alone -= {of_metric, of_task}
            one, two = (prepared(made, name, curve, layers) for name, curve in ((of_metric, x), (of_task, y)))
            named = {
                "metric": metric,
                "rows": treatment,
                "tokens": tokens,
                "pooling": pooling,
                "task": task,
                "task_pooling": task_pooling,
                "transform": transform,
            }
            rows.append(named | {"layers": len(layers)} | one.correlations(two))
    if not rows:
        raise InputError(
            f"the two tables have fewer than four layers in common with norm {norm!r}, equal tokens and equal pooling: "
            f"the scan has {words(metrics, 2, 3)}, the eval {words(tasks, 1, 2)}"
        )
    table = pd.DataFrame(rows)
    warn(alone, int(table.layers.min()))
    return table


def warn(alone: set[tuple[str, ...]], fewest: int) -> None:
    if alone:
        names = ", ".join(sorted(" ".join(name) for name in alone)[:4])
        warnings.warn(
            f"{len(alone)} curves have no match with equal tokens and pooling and at least four common layers, "
            f"and are left out: {names}{', ...' if len(alone) > 4 else ''}",
            stacklevel=3,
        )
    if fewest < FEW_LAYERS:
        warnings.warn(f"only {fewest} layers in common: these correlations are unreliable", stacklevel=3)


def words(found: dict[tuple[str, ...], Any], *places: int) -> str:
    """The tokens and poolings of curves, for a message."""
    return " or ".join(sorted({"/".join(name[i] for i in places) for name in found})) or "no curves with this norm"


def prepared(made: dict[tuple[object, ...], Curve], name: tuple[str, ...], curve: Any, layers: list[int]) -> Curve:
    """The curve over these layers, from a cache."""
    key = (len(name), name, tuple(layers))
    if key not in made:
        even = len(set(np.diff(layers))) == 1
        made[key] = Curve(curve.loc[layers].to_numpy(float), evenly_spaced=even)
    return made[key]


def require_one_model(scan: LayerTable, scored: LayerTable) -> None:
    """Raises unless the tables are a scan and an eval of the same model."""
    kinds = (scan.kind or "scan", scored.kind or "eval")
    if kinds != ("scan", "eval"):
        raise InputError(f"expected a scan and then an eval, got {kinds[0]} and {kinds[1]}")
    one, other = scan.model, scored.model
    if one is not None and other is not None and not one.same_as(other):
        raise InputError(
            f"the scan is of {one.name}, but the eval is of {other.name}: their weights or tokenizers differ"
        )
    hashes = {row.model_hash for table in (scan, scored) for row in table if row.model_hash}
    if len(hashes) > 1:
        raise InputError("the rows belong to different models: their weights or tokenizers differ (column model_hash)")


def curves(table: LayerTable, norm: str, by: list[str]) -> dict[tuple[str, ...], "pd.Series[Any]"]:
    """Values by layer for each setting; raises if a setting has several values for one layer."""
    frame = table.to_pandas()
    frame = frame[frame.norm == norm]
    found = {}
    for name, part in frame.groupby(by):
        if part.layer.duplicated().any():
            others = [c for c in part.columns if c not in NUMBERS and part[c].nunique(dropna=False) > 1]
            raise InputError(
                f"{' '.join(map(str, name))} has several values for one layer, which differ in "
                f"{', '.join(others) or 'nothing but the value'}; select one of them with table.where(...)"
            )
        found[name] = part.set_index("layer").value.sort_index()
    return found

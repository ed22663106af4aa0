"""Which metrics go with which tasks over the layers, with p-values that know that neighbouring layers are alike."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerwise.errors import InputError
from layerwise.results import LayerTable

FEW_LAYERS = 10
Curve = NDArray[np.float64]


def correlations(scan: LayerTable, scored: LayerTable, *, readout: str = "raw") -> pd.DataFrame:
    """One row a metric (with its rows and tokens) and task: Spearman, Kendall, distance correlation, each with p.

    Only layers that both tables have count, in the same readout. Metric and score are of the same tensor where
    tokens and pooling agree; where the scan has several token choices, each is held against its own.
    """
    require_one_model(scan, scored)
    metrics = curves(scan, readout, ["metric", "rows", "tokens"])
    tasks = curves(scored, readout, ["metric", "tokens", "pooling"])
    rows = []
    for (metric, treatment, tokens), x in metrics.items():
        for (task, scored_tokens, pooling), y in tasks.items():
            if tokens != scored_tokens or pooling != "mean":
                continue
            both = pd.concat([x, y], axis=1, join="inner").dropna()
            a, b = both.iloc[:, 0].to_numpy(float), both.iloc[:, 1].to_numpy(float)
            if len(both) < 4:
                continue
            found = {name: value for how in MEASURES for name, value in with_p(how, a, b).items()}
            named = {"metric": metric, "rows": treatment, "tokens": tokens, "task": task}
            rows.append(named | {"layers": len(both)} | found)
    if not rows:
        raise InputError(f"the two tables share no four layers with readout {readout!r} and equal tokens")
    table = pd.DataFrame(rows)
    if (fewest := int(table.layers.min())) < FEW_LAYERS:
        warnings.warn(
            f"only {fewest} layers: by circular shifts no p-value falls below 1/{fewest}; these numbers say little",
            stacklevel=2,
        )
    return table


def require_one_model(scan: LayerTable, scored: LayerTable) -> None:
    """A scan first, an evaluation second, of one model."""
    kinds = (scan.run.get("kind", "scan"), scored.run.get("kind", "eval"))
    if kinds != ("scan", "eval"):
        raise InputError(f"expected a scan and then an eval, got {kinds[0]} and {kinds[1]}")
    models = [table.run.get("model", {}).get("fingerprint") for table in (scan, scored)]
    if None not in models and models[0] != models[1]:
        names = [table.run["model"]["name"] for table in (scan, scored)]
        raise InputError(f"the scan is of {names[0]}, the eval of {names[1]}: different weights or tokenizers")


def curves(table: LayerTable, readout: str, by: list[str]) -> dict[tuple[str, ...], "pd.Series[Any]"]:
    frame = table.to_pandas()
    frame = frame[frame.readout == readout]
    return {name: part.set_index("layer").value.sort_index() for name, part in frame.groupby(by)}


def with_p(how: str, a: Curve, b: Curve) -> dict[str, float]:
    """The measure, and the share of circular shifts of one curve that do as well: shifts keep a curve's smoothness."""
    measure = MEASURES[how]
    value = measure(a, b)
    if np.isnan(value):
        return {how: value, f"{how}_p": value}
    shifted = [abs(measure(np.roll(a, shift), b)) for shift in range(len(a))]  # shift 0 is the value itself
    return {how: value, f"{how}_p": float(np.mean([s >= abs(value) - 1e-12 for s in shifted]))}


def spearman(a: Curve, b: Curve) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic) if np.ptp(a) and np.ptp(b) else float("nan")


def kendall(a: Curve, b: Curve) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(a, b).statistic) if np.ptp(a) and np.ptp(b) else float("nan")


def distance_correlation(a: Curve, b: Curve) -> float:
    """Szekely's distance correlation of two curves: 0 to 1, sees any dependence, has no sign."""
    x, y = centered_distances(a), centered_distances(b)
    spread = float((x * x).mean() * (y * y).mean())
    return float(np.sqrt(max((x * y).mean(), 0.0) / np.sqrt(spread))) if spread > 0 else float("nan")


def centered_distances(a: Curve) -> Curve:
    distance = np.abs(a[:, None] - a[None, :])
    centered: Curve = distance - distance.mean(axis=0) - distance.mean(axis=1, keepdims=True) + distance.mean()
    return centered


MEASURES = {"spearman": spearman, "kendall": kendall, "distance": distance_correlation}

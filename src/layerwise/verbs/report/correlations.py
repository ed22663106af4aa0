"""Which metrics correlate with which tasks across layers: descriptive correlations, and a test on second
differences.

A curve is one number per layer. Two curves that both rise or fall with depth correlate almost perfectly even if
unrelated, so the correlation of curves is descriptive and not tested. The bends b[k] = x[k-1] - 2 x[k] + x[k+1] can be
tested, since trends and random walks do not affect them (studies/correlation).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from layerwise.core.errors import InputError
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable

Array = NDArray[np.float64]
SURROGATES = 250  # per curve; twice as many per p-value
MIN_LAYERS = 7  # shortest curves for which the test was simulated

# ---- measures: features (..., n) -> (..., k) of unit length; a correlation is a dot product; NaN if constant


def spearman(a: Array) -> Array:
    """Centred ranks; equal values share their mean rank."""
    from scipy.stats import rankdata

    ranks = np.asarray(rankdata(a, axis=-1), dtype=np.float64)
    return normalize(ranks - ranks.mean(axis=-1, keepdims=True))


def kendall(a: Array) -> Array:
    """The sign of every pair of values: the dot product is Kendall's tau-b."""
    upper = np.triu_indices(a.shape[-1], 1)
    return normalize(np.sign(a[..., upper[0]] - a[..., upper[1]]))


def distance(a: Array) -> Array:
    """Szekely's centred distances: the dot product is the squared distance correlation."""
    distances = np.abs(a[..., :, None] - a[..., None, :])
    rows = distances.mean(axis=-1, keepdims=True)
    centred = distances - rows - np.swapaxes(rows, -1, -2) + rows.mean(axis=-2, keepdims=True)
    return normalize(centred.reshape(*a.shape[:-1], -1))


def normalize(features: Array) -> Array:
    length = np.sqrt((features**2).sum(axis=-1, keepdims=True))
    return np.asarray(features / np.where(length > 0, length, np.nan))


MEASURES: dict[str, Callable[[Array], Array]] = {"spearman": spearman, "kendall": kendall, "distance": distance}


def correlation(measure: str, a: Array, b: Array) -> float:
    """One measure of two curves (n,): Spearman and Kendall from -1 to 1, distance from 0 to 1; NaN if one is
    constant."""
    return correlation_value(measure, float(MEASURES[measure](a) @ MEASURES[measure](b)))


def correlation_value(measure: str, dot: float) -> float:
    return float(np.sqrt(max(dot, 0.0))) if measure == "distance" and dot == dot else dot


# ---- bends, and surrogate curves with the same spectrum


def second_differences(a: Array) -> Array:
    """Second differences (..., n) -> (..., n - 2); zero if only rounding error is left of a straight line."""
    differences = np.diff(a, n=2, axis=-1)
    noise = 64 * np.finfo(np.float64).eps * np.abs(a).max(axis=-1, keepdims=True)
    return np.asarray(np.where(np.abs(differences) <= noise, 0.0, differences))


def surrogates(random: np.random.Generator, a: Array, count: int = SURROGATES) -> Array:
    """Curves with the spectrum of `a` and random phases: (..., n) -> (..., count, n).

    The spectrum is that of the curve followed by its mirror image, which avoids a jump at the ends.
    """
    n = a.shape[-1]
    mean = a.mean(axis=-1, keepdims=True)
    mirrored = np.concatenate([a, np.flip(a, axis=-1)], axis=-1) - mean
    amplitudes = np.abs(np.fft.rfft(mirrored, axis=-1))[..., None, :]
    phases = np.exp(2j * np.pi * random.random((*a.shape[:-1], count, n + 1)))
    phases[..., -1] = np.where(phases[..., -1].real > 0, 1, -1)  # the Nyquist frequency has only two phases
    return np.asarray(np.fft.irfft(amplitudes * phases, n=2 * n, axis=-1)[..., :n] + mean[..., None, :])


def p_value(observed: Any, surrogate_values: Array) -> Any:
    """Fraction of surrogates with a stronger correlation; ties, and the pair itself, count half.  (...), (..., s)"""
    observed, surrogate_values = np.abs(np.asarray(observed))[..., None], np.abs(surrogate_values)
    rounding = 1e-9
    above = (surrogate_values > observed + rounding).sum(axis=-1)
    equal = (surrogate_values >= observed - rounding).sum(axis=-1) - above
    p = (above + 0.5 * (equal + 1)) / (surrogate_values.shape[-1] + 1)
    return np.where(np.isnan(observed[..., 0]) | np.isnan(surrogate_values).any(axis=-1), np.nan, p)


def second_difference_test(measure: str, a: Array, b: Array, count: int = SURROGATES, seed: int = 0) -> tuple[Any, Any]:
    """Dot product and p-value of the bends of curves (..., n): surrogates of each are compared with the other."""
    random = np.random.default_rng(seed)
    features = MEASURES[measure]
    x, y = second_differences(a), second_differences(b)
    features_x, features_y = features(x), features(y)
    surrogate_x = np.einsum("...sk,...k->...s", features(surrogates(random, x, count)), features_y)
    surrogate_y = np.einsum("...sk,...k->...s", features(surrogates(random, y, count)), features_x)
    observed = (features_x * features_y).sum(axis=-1)
    return observed, p_value(observed, np.concatenate([surrogate_x, surrogate_y], axis=-1))


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve with cached features, so that they are computed once for many comparisons."""

    values: Array
    evenly_spaced: bool = True

    @cached_property
    def features(self) -> dict[str, Array]:
        return {name: features(self.values) for name, features in MEASURES.items()}

    @cached_property
    def difference_features(self) -> dict[str, Array]:
        return {name: features(second_differences(self.values)) for name, features in MEASURES.items()}

    @cached_property
    def surrogate_features(self) -> dict[str, Array]:
        curves = surrogates(np.random.default_rng(0), second_differences(self.values))
        return {name: features(curves) for name, features in MEASURES.items()}

    def correlations(self, other: "Curve") -> dict[str, float]:
        """Each measure of the curves and of their bends, with the p-value of the bends; NaN if undefined."""
        results = {
            name: correlation_value(name, float(self.features[name] @ other.features[name])) for name in MEASURES
        }
        for name in MEASURES:
            results |= {f"{name}_bends": np.nan, f"{name}_bends_p": np.nan}
            if self.evenly_spaced and len(self.values) >= MIN_LAYERS:
                dot = float(self.difference_features[name] @ other.difference_features[name])
                surrogate_values = np.concatenate(
                    [
                        a.surrogate_features[name] @ b.difference_features[name]
                        for a, b in ((self, other), (other, self))
                    ]
                )
                results |= {
                    f"{name}_bends": correlation_value(name, dot),
                    f"{name}_bends_p": float(p_value(dot, surrogate_values)),
                }
        return results


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

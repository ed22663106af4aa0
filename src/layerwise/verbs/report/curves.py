"""Correlation of two curves over layers: three measures as dot products, and a test of their second differences.

A curve is one number per layer. Two curves that both rise or fall with depth correlate almost perfectly even if
unrelated, so the correlation of curves is descriptive and not tested. The bends b[k] = x[k-1] - 2 x[k] + x[k+1] can be
tested, since trends and random walks do not affect them (studies/correlation).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

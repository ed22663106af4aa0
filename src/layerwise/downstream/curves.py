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
FEWEST_LAYERS = 7  # shortest curves for which the test was simulated

# ---- measures: features (..., n) -> (..., k) of unit length; a correlation is a dot product; NaN if constant


def spearman(a: Array) -> Array:
    """Centred ranks; equal values share their mean rank."""
    from scipy.stats import rankdata

    ranks = np.asarray(rankdata(a, axis=-1), dtype=np.float64)
    return unit(ranks - ranks.mean(axis=-1, keepdims=True))


def kendall(a: Array) -> Array:
    """The sign of every pair of values: the dot product is Kendall's tau-b."""
    above = np.triu_indices(a.shape[-1], 1)
    return unit(np.sign(a[..., above[0]] - a[..., above[1]]))


def distance(a: Array) -> Array:
    """Szekely's centred distances: the dot product is the squared distance correlation."""
    apart = np.abs(a[..., :, None] - a[..., None, :])
    rows = apart.mean(axis=-1, keepdims=True)
    centred = apart - rows - np.swapaxes(rows, -1, -2) + rows.mean(axis=-2, keepdims=True)
    return unit(centred.reshape(*a.shape[:-1], -1))


def unit(features: Array) -> Array:
    length = np.sqrt((features**2).sum(axis=-1, keepdims=True))
    return np.asarray(features / np.where(length > 0, length, np.nan))


MEASURES: dict[str, Callable[[Array], Array]] = {"spearman": spearman, "kendall": kendall, "distance": distance}


def correlation(measure: str, a: Array, b: Array) -> float:
    """One measure of two curves (n,): Spearman and Kendall from -1 to 1, distance from 0 to 1; NaN if one is
    constant."""
    return value_of(measure, float(MEASURES[measure](a) @ MEASURES[measure](b)))


def value_of(measure: str, dot: float) -> float:
    return float(np.sqrt(max(dot, 0.0))) if measure == "distance" and dot == dot else dot


# ---- bends, and surrogate curves with the same spectrum


def bends(a: Array) -> Array:
    """Second differences (..., n) -> (..., n - 2); zero if only rounding error is left of a straight line."""
    found = np.diff(a, n=2, axis=-1)
    noise = 64 * np.finfo(np.float64).eps * np.abs(a).max(axis=-1, keepdims=True)
    return np.asarray(np.where(np.abs(found) <= noise, 0.0, found))


def surrogates(random: np.random.Generator, a: Array, count: int = SURROGATES) -> Array:
    """Curves with the spectrum of `a` and random phases: (..., n) -> (..., count, n).

    The spectrum is that of the curve followed by its mirror image, which avoids a jump at the ends.
    """
    n = a.shape[-1]
    mean = a.mean(axis=-1, keepdims=True)
    mirrored = np.concatenate([a, np.flip(a, axis=-1)], axis=-1) - mean
    power = np.abs(np.fft.rfft(mirrored, axis=-1))[..., None, :]
    turn = np.exp(2j * np.pi * random.random((*a.shape[:-1], count, n + 1)))
    turn[..., -1] = np.where(turn[..., -1].real > 0, 1, -1)  # the Nyquist frequency has only two phases
    return np.asarray(np.fft.irfft(power * turn, n=2 * n, axis=-1)[..., :n] + mean[..., None, :])


def p_value(found: Any, by_chance: Array) -> Any:
    """Fraction of surrogates with a stronger correlation; ties, and the pair itself, count half.  (...), (..., s)"""
    found, by_chance = np.abs(np.asarray(found))[..., None], np.abs(by_chance)
    rounding = 1e-9
    above = (by_chance > found + rounding).sum(axis=-1)
    equal = (by_chance >= found - rounding).sum(axis=-1) - above
    p = (above + 0.5 * (equal + 1)) / (by_chance.shape[-1] + 1)
    return np.where(np.isnan(found[..., 0]) | np.isnan(by_chance).any(axis=-1), np.nan, p)


def bends_test(measure: str, a: Array, b: Array, count: int = SURROGATES, seed: int = 0) -> tuple[Any, Any]:
    """Dot product and p-value of the bends of curves (..., n): surrogates of each are compared with the other."""
    random = np.random.default_rng(seed)
    features = MEASURES[measure]
    x, y = bends(a), bends(b)
    of_x, of_y = features(x), features(y)
    from_x = np.einsum("...sk,...k->...s", features(surrogates(random, x, count)), of_y)
    from_y = np.einsum("...sk,...k->...s", features(surrogates(random, y, count)), of_x)
    found = (of_x * of_y).sum(axis=-1)
    return found, p_value(found, np.concatenate([from_x, from_y], axis=-1))


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve with cached features, so that they are computed once for many comparisons."""

    values: Array
    evenly_spaced: bool = True

    @cached_property
    def features(self) -> dict[str, Array]:
        return {name: features(self.values) for name, features in MEASURES.items()}

    @cached_property
    def bent(self) -> dict[str, Array]:
        return {name: features(bends(self.values)) for name, features in MEASURES.items()}

    @cached_property
    def by_chance(self) -> dict[str, Array]:
        made = surrogates(np.random.default_rng(0), bends(self.values))
        return {name: features(made) for name, features in MEASURES.items()}

    def correlations(self, other: "Curve") -> dict[str, float]:
        """Each measure of the curves and of their bends, with the p-value of the bends; NaN if undefined."""
        found = {name: value_of(name, float(self.features[name] @ other.features[name])) for name in MEASURES}
        for name in MEASURES:
            found |= {f"{name}_bends": np.nan, f"{name}_bends_p": np.nan}
            if self.evenly_spaced and len(self.values) >= FEWEST_LAYERS:
                dot = float(self.bent[name] @ other.bent[name])
                chance = np.concatenate([a.by_chance[name] @ b.bent[name] for a, b in ((self, other), (other, self))])
                found |= {f"{name}_bends": value_of(name, dot), f"{name}_bends_p": float(p_value(dot, chance))}
        return found

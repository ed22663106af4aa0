"""How often each test calls two independent curves related at a nominal 5 %, and how often it finds a real coupling.

    python studies/correlation/level.py --tests shipped --out studies/correlation/level.csv
    python studies/correlation/level.py --tests others --layers 19 --out studies/correlation/other_tests.csv

A curve is one number per layer. Both curves of a pair are drawn independently from one kind of process; a test that
holds its level calls 5 % of the pairs related. Every test computes a statistic on the pair and on surrogates, and its
p-value is the share of surrogates with a larger one (ties count half). The test that layerwise ships is run by the code
that it ships; the others stand here only. They are run for Spearman: a test that fails there is out.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerwise.verbs.report.correlations import p_value, second_difference_test, spearman, surrogates

Array = NDArray[np.float64]
Random = np.random.Generator
LAYERS = (7, 13, 19, 25, 31)
SURROGATES = 99
LEVEL = 0.05

# ---- curves: (pairs, layers) -> (R, n), every row drawn anew


def white(random: Random, r: int, n: int) -> Array:
    return random.normal(size=(r, n))


def ar1(random: Random, r: int, n: int, phi: float = 0.7) -> Array:
    steps, curve = random.normal(size=(r, n)), np.empty((r, n))
    curve[:, 0] = steps[:, 0] / np.sqrt(1 - phi**2)
    for k in range(1, n):
        curve[:, k] = phi * curve[:, k - 1] + steps[:, k]
    return curve


def walk(random: Random, r: int, n: int) -> Array:
    return random.normal(size=(r, n)).cumsum(axis=1)


def slopes(random: Random, r: int) -> Array:
    """Between 1 and 3 over the whole depth, up or down."""
    return random.uniform(1, 3, size=(r, 1)) * random.choice([-1.0, 1.0], size=(r, 1))


def linear(random: Random, r: int, n: int, noise: float = 0.3) -> Array:
    return slopes(random, r) * np.linspace(0, 1, n) + noise * random.normal(size=(r, n))


def quadratic(random: Random, r: int, n: int, noise: float = 0.3) -> Array:
    depth = np.linspace(0, 1, n)
    return slopes(random, r) * depth + 2 * slopes(random, r) * (depth - 0.5) ** 2 + noise * random.normal(size=(r, n))


def drift(random: Random, r: int, n: int) -> Array:
    """A random walk with a linear trend."""
    return walk(random, r, n) / np.sqrt(n) + slopes(random, r) * np.linspace(0, 1, n)


def bump(random: Random, r: int, n: int, noise: float = 0.02) -> Array:
    """One smooth hill or valley with little noise, as many metrics have over depth."""
    centre, width = random.uniform(0, 1, size=(r, 1)), random.uniform(0.1, 0.4, size=(r, 1))
    hill = np.exp(-0.5 * ((np.linspace(0, 1, n) - centre) / width) ** 2) * random.choice([-1.0, 1.0], size=(r, 1))
    return hill + noise * random.normal(size=(r, n))


def cubic(random: Random, r: int, n: int) -> Array:
    depth = np.linspace(-1, 1, n)
    weights = random.normal(size=(3, r, 1)) * [[[1.0]], [[1.0]], [[2.0]]]
    return sum(w * depth**k for k, w in enumerate(weights, start=1)) + 0.1 * random.normal(size=(r, n))


def smooth(random: Random, r: int, n: int) -> Array:
    """A Gaussian process that turns about twice over the depth."""
    depth = np.linspace(0, 1, n)
    cover = np.exp(-0.5 * ((depth[:, None] - depth) / 0.25) ** 2) + 1e-6 * np.eye(n)
    return random.normal(size=(r, n)) @ np.linalg.cholesky(cover).T + 0.02 * random.normal(size=(r, n))


def exponential(random: Random, r: int, n: int) -> Array:
    """Grows or falls by a factor of 3 to 400, with noise of 3 % of the value: as norms can."""
    sign, rate = random.choice([-1.0, 1.0], size=(r, 1)), random.uniform(1, 6, size=(r, 1))
    return sign * np.exp(rate * np.linspace(0, 1, n)) * (1 + 0.03 * random.normal(size=(r, n)))


def alike(kind: Callable[..., Array], **more: float) -> Callable[[Random, int, int], tuple[Array, Array]]:
    return lambda random, r, n: (kind(random, r, n, **more), kind(random, r, n, **more))


KINDS: dict[str, Callable[[Random, int, int], tuple[Array, Array]]] = {
    "white": alike(white),
    "ar1": alike(ar1),
    "walk": alike(walk),
    "linear": alike(linear),
    "linear, quiet": alike(linear, noise=0.03),
    "quadratic": alike(quadratic),
    "quadratic, quiet": alike(quadratic, noise=0.03),
    "walk + linear": alike(drift),
    "bump": alike(bump),
    "smooth": alike(smooth),
    "bump, quiet": alike(bump, noise=0.002),
    "cubic": alike(cubic),
    "exponential": alike(exponential),
    "exponential and walk": lambda random, r, n: (exponential(random, r, n), walk(random, r, n)),
    "exponential and bump": lambda random, r, n: (exponential(random, r, n), bump(random, r, n)),
}
NAMED = list(KINDS)[:9]  # for which a test is asked to hold its level; the rest goes beyond


def coupled_walks(random: Random, r: int, n: int) -> tuple[Array, Array]:
    """Two random walks whose steps correlate by 0.8."""
    shared, own = random.normal(size=(r, n)), random.normal(size=(r, n))
    return shared.cumsum(axis=1), (0.8 * shared + 0.6 * own).cumsum(axis=1)


def coupled_noise(random: Random, r: int, n: int) -> tuple[Array, Array]:
    """Two trends of independent slopes whose noise correlates by 0.8."""
    shared, own = random.normal(size=(r, n)), random.normal(size=(r, n))
    depth = np.linspace(0, 1, n)
    return slopes(random, r) * depth + 0.3 * shared, slopes(random, r) * depth + 0.3 * (0.8 * shared + 0.6 * own)


def coupled_bumps(random: Random, r: int, n: int) -> tuple[Array, Array]:
    """One bump seen twice, the second time with noise of a tenth of its height."""
    hill = bump(random, r, n)
    return hill, hill + 0.1 * random.normal(size=(r, n))


COUPLED = {"coupled walks": coupled_walks, "coupled noise": coupled_noise, "coupled bumps": coupled_bumps}

# ---- what is correlated: a curve, or what is left of it.  (..., n) -> (..., m)


def levels(a: Array) -> Array:
    return a


def without_parabola(a: Array) -> Array:
    """Residuals of a parabola in depth."""
    depth = np.linspace(-1, 1, a.shape[-1])
    basis = np.linalg.qr(np.stack([depth**0, depth, depth**2], axis=1))[0]
    return np.asarray(a - (a @ basis) @ basis.T)


def differences(a: Array) -> Array:
    return np.diff(a, axis=-1)


def second_differences(a: Array) -> Array:
    return np.diff(a, n=2, axis=-1)


def centred_differences(a: Array) -> Array:
    steps = differences(a)
    return np.asarray(steps - steps.mean(axis=-1, keepdims=True))


def innovations(a: Array) -> Array:
    """Residuals of a parabola, then of an autoregression of order one on them."""
    rest = without_parabola(a)
    return np.asarray(rest[..., 1:] - ar_coefficient(rest)[..., None] * rest[..., :-1])


def ar_coefficient(rest: Array) -> Array:
    power = (rest**2).sum(axis=-1)
    phi = (rest[..., 1:] * rest[..., :-1]).sum(axis=-1) / np.where(power > 0, power, 1)
    return np.asarray(np.clip(phi, -0.95, 0.95))


# ---- surrogates: (R, n) -> (R, S, n)


def permuted(random: Random, a: Array) -> Array:
    order = random.random((len(a), SURROGATES, a.shape[1])).argsort(axis=-1)
    return np.take_along_axis(np.repeat(a[:, None], SURROGATES, axis=1), order, axis=-1)


def shifted(random: Random, a: Array) -> Array:
    """All circular shifts but none, as often as they fit: with n layers no p-value falls below 1/n."""
    n = a.shape[1]
    return np.stack([np.roll(a, k, axis=1) for k in range(1, n)], axis=1)


def blocks_permuted(random: Random, a: Array, size: int = 3) -> Array:
    """Blocks of three neighbours in another order, starting anywhere."""
    r, n = a.shape
    count = -(-n // size)
    order = random.random((r, SURROGATES, count)).argsort(axis=-1)
    at = (order[..., None] * size + np.arange(size)).reshape(r, SURROGATES, -1)
    kept = at < n
    flat = zip(at.reshape(-1, count * size), kept.reshape(-1, count * size), strict=True)
    at = np.stack([row[mask] for row, mask in flat])
    start = random.integers(n, size=(r, SURROGATES, 1))
    at = (at.reshape(r, SURROGATES, n) + start) % n
    return np.take_along_axis(np.repeat(a[:, None], SURROGATES, axis=1), at, axis=-1)


def sign_flipped(random: Random, a: Array) -> Array:
    return a[:, None] * random.choice([-1.0, 1.0], size=(len(a), SURROGATES, a.shape[1]))


def phases(random: Random, a: Array) -> Array:
    """The same power spectrum with random phases."""
    n = a.shape[1]
    mean = a.mean(axis=1, keepdims=True)
    power = np.abs(np.fft.rfft(a - mean, axis=1))[:, None]
    turned = power * np.exp(2j * np.pi * random.random((len(a), SURROGATES, power.shape[-1])))
    turned[..., 0] = 0
    if n % 2 == 0:
        turned[..., -1] = power[..., -1] * random.choice([-1.0, 1.0], size=turned.shape[:2])
    return np.fft.irfft(turned, n=n, axis=-1) + mean[:, None]


def mirrored_phases(random: Random, a: Array) -> Array:
    """The same, for the curve followed by its mirror image."""
    return surrogates(random, a, SURROGATES)


def ar_model(random: Random, a: Array) -> Array:
    """Drawn from the curve's own fitted model: a parabola (left out, it is removed anyway) and AR(1) around it.

    The coefficient is corrected for its bias in short curves by (1 + 4 phi) / n, as Marriott and Pope give it.
    """
    rest = without_parabola(a)
    phi = ar_coefficient(rest)
    phi = np.clip(phi + (1 + 4 * phi) / a.shape[1], -0.99, 0.99)[:, None]
    steps, out = random.normal(size=(len(a), SURROGATES, a.shape[1])), np.empty((len(a), SURROGATES, a.shape[1]))
    out[..., 0] = steps[..., 0] / np.sqrt(1 - phi**2)
    for k in range(1, a.shape[1]):
        out[..., k] = phi * out[..., k - 1] + steps[..., k]
    return out


# ---- tests: what is compared, how surrogates are made of it, and what they are held against

Test = tuple[Callable[[Array], Array], Callable[[Random, Array], Array], str]
TESTS: dict[str, Test] = {
    "levels, permutation": (levels, permuted, "one"),
    "levels, circular shift": (levels, shifted, "one"),
    "levels, Fourier phases": (levels, phases, "one"),
    "parabola removed, permutation": (without_parabola, permuted, "again"),
    "parabola removed, circular shift": (without_parabola, shifted, "again"),
    "parabola removed, Fourier phases": (without_parabola, phases, "again"),
    "parabola removed, AR(1) model": (without_parabola, ar_model, "model"),
    "parabola and AR(1) removed, permutation": (innovations, permuted, "one"),
    "differences, permutation": (differences, permuted, "one"),
    "differences, blocks of 3 permuted": (differences, blocks_permuted, "one"),
    "differences, circular shift": (differences, shifted, "one"),
    "differences, Fourier phases": (differences, phases, "one"),
    "differences, mirrored phases": (differences, mirrored_phases, "each"),
    "centred differences, sign flips": (centred_differences, sign_flipped, "one"),
    "second differences, permutation": (second_differences, permuted, "one"),
    "second differences, Fourier phases": (second_differences, phases, "one"),
}
EFFECTIVE, SHIPPED = "parabola removed, effective size", "second differences, mirrored phases"


def p_values(test: str, random: Random, a: Array, b: Array) -> Array:
    """One p-value per pair by Spearman, two-sided.  (R, n), (R, n) -> (R,)"""
    keep, made_of, against = TESTS[test]
    x, y = keep(a), keep(b)
    if against == "model":  # both curves from their fitted models: the statistic's own null distribution
        chance = dots(keep(made_of(random, a)), keep(made_of(random, b)))
    elif against == "again":  # what a parabola leaves of the surrogates, as Freedman and Lane do it
        chance = dots(keep(made_of(random, x)), y[:, None])
    else:
        chance = dots(made_of(random, x), y[:, None])
    if against == "each":  # surrogates of each curve against the other
        chance = np.concatenate([chance, dots(made_of(random, y), x[:, None])], axis=1)
    return np.asarray(p_value(dots(x, y), chance))


def dots(a: Array, b: Array) -> Array:
    return np.asarray((spearman(a) * spearman(b)).sum(axis=-1))


def effective_size(a: Array, b: Array) -> Array:
    """Spearman's t-test with Bretherton's effective number of layers, on what a parabola leaves."""
    from scipy.stats import t

    x, y = spearman(without_parabola(a)), spearman(without_parabola(b))
    n = a.shape[1]
    value = (x * y).sum(axis=1)
    inflation = np.ones(len(a))
    for lag in range(1, max(2, n // 3)):
        both = [(c[:, lag:] * c[:, :-lag]).sum(axis=1) for c in (x, y)]
        inflation += 2 * (1 - lag / n) * both[0] * both[1]
    freedom = np.clip(n / np.clip(inflation, 0.2, None), 3.5, n) - 2
    score = np.abs(value) * np.sqrt(freedom / np.clip(1 - value**2, 1e-12, None))
    return np.asarray(2 * t.sf(score, freedom))


def rate(measure: str, test: str, kind: str, n: int, repetitions: int, seed: int = 0, count: int = 50) -> float:
    """The share of pairs that the test calls related at 5 %. Every test sees the same curves.

    `count` surrogates per curve are fewer than are shipped; another `seed` gives other curves.
    """
    random = np.random.default_rng([n, *kind.encode(), *([seed] if seed else [])])
    a, b = (KINDS | COUPLED)[kind](random, repetitions, n)
    hits = 0
    step = 100
    for start in range(0, repetitions, step):
        x, y = a[start : start + step], b[start : start + step]
        if test == SHIPPED:
            p = second_difference_test(measure, x, y, count, seed=start + 10**6 * seed)[1]
        else:
            p = effective_size(x, y) if test == EFFECTIVE else p_values(test, random, x, y)
        hits += int((p <= LEVEL).sum())
    return hits / repetitions


def cells(measures: str, tests: tuple[str, ...], layers: str) -> Iterator[tuple[str, str, str, int]]:
    for measure in measures.split(","):
        for test in tests:
            counts = list(map(int, layers.split(",")))
            if measure == "spearman" or test == SHIPPED:
                kinds = KINDS if test == SHIPPED else NAMED
                yield from ((measure, test, kind, n) for kind in [*kinds, *COUPLED] for n in counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--measures", default="spearman,kendall,distance")
    parser.add_argument("--tests", choices=["shipped", "others"], default="shipped")
    parser.add_argument("--curves", help="kinds of curves with ; between them; default: all")
    parser.add_argument("--layers", default=",".join(map(str, LAYERS)))
    parser.add_argument("--seed", type=int, default=0, help="other curves")
    parser.add_argument("--surrogates", type=int, default=50, help="per curve, of the shipped test")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    others = (*TESTS, EFFECTIVE)
    tests = (SHIPPED,) if args.tests == "shipped" else others
    lines, begun = ["measure,test,curves,layers,called_related,repetitions"], time.monotonic()
    for measure, test, kind, n in cells(args.measures, tests, args.layers):
        if args.curves and kind not in args.curves.split(";"):
            continue
        found = rate(measure, test, kind, n, args.repetitions, args.seed, args.surrogates)
        lines.append(f'{measure},"{test}","{kind}",{n},{found:.4f},{args.repetitions}')
        print(f"{time.monotonic() - begun:6.0f} s  {lines[-1]}", flush=True)
        if args.out:
            args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

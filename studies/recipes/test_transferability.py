"""H-score and LogME are what their definitions give. Run by hand: `pytest studies/recipes/test_transferability.py`."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from transferability import h_score, ledoit_wolf_shrinkage, log_me

from layerwise.core.errors import InputError

RNG = np.random.default_rng(0)


def classes(count, width, number, distance, seed=0):
    """Gaussian classes with means on the axes, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % number
    return 3 * (rng.normal(size=(count, width)) + distance * np.eye(number, width)[labels]), labels


def test_the_h_score_of_two_gaussians_is_known():
    """Means +-a along one axis, unit variance: the variance of that axis is 1 + a^2, of which a^2 is between."""
    rng = np.random.default_rng(1)
    labels, a = np.arange(200_000) % 2, 1.5
    rows = rng.normal(size=(200_000, 3)) @ np.diag([1.0, 1.0, 1.0])
    rows[:, 1] += a * (2 * labels - 1)
    mixed = rows @ rng.normal(size=(3, 3))
    assert h_score(mixed, labels) == pytest.approx(a**2 / (1 + a**2), abs=0.005)


def test_the_h_score_is_the_r_squared_of_a_regression_on_the_classes():
    """Of two classes it is 1 minus the unexplained share of a linear regression of the label on the vectors."""
    rows, labels = classes(80, 6, 2, 1.0)
    design = np.c_[np.ones(80), rows]
    residual = labels - design @ np.linalg.lstsq(design, labels, rcond=None)[0]
    assert h_score(rows, labels) == pytest.approx(1 - residual.var() / labels.var())
    words = np.array(["no", "yes"])[labels]
    assert h_score(rows @ RNG.normal(size=(6, 6)) + 4, words) == pytest.approx(h_score(rows, labels)), "linear maps"


def test_the_h_score_of_too_few_texts_is_its_maximum_unless_shrunk():
    rows, labels = RNG.normal(size=(30, 50)), np.arange(30) % 3
    assert h_score(rows, labels) == pytest.approx(2)
    near, far = (h_score(*classes(30, 50, 3, d), shrink=True) for d in (0.0, 3.0))
    assert 0 <= near < far < 2
    assert h_score(np.ones((6, 2)), [0, 1] * 3, shrink=True) == h_score(np.ones((6, 2)), [0, 1] * 3) == 0


@pytest.mark.parametrize(("count", "width"), [(20, 50), (200, 5)])
def test_the_shrunk_covariance_is_scikit_learns(count, width):
    from sklearn.covariance import ledoit_wolf

    rows, labels = classes(count, width, 2, 1.0)
    covariance, shrinkage = ledoit_wolf(rows)
    assert ledoit_wolf_shrinkage(rows - rows.mean(axis=0)) == pytest.approx(shrinkage)
    means = np.array([rows[labels == k].mean(axis=0) for k in labels]) - rows.mean(axis=0)
    expected = (1 - shrinkage) * np.trace(np.linalg.solve(covariance, means.T @ means / count))
    assert h_score(rows, labels, shrink=True) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("count", "width", "number", "distance"), [(40, 5, 2, 0.5), (40, 60, 3, 0.7), (30, 30, 2, 0.3), (50, 8, 4, 2.0)]
)
def test_log_me_is_the_largest_evidence_of_the_labels(count, width, number, distance):
    """The labels are Gaussian with covariance F F' / alpha + I / beta: scipy finds the alpha and beta that fit best."""
    rows, labels = classes(count, width, number, distance)
    best = []
    for k in range(number):

        def loss(precisions, y=(labels == k) * 1.0):
            alpha, beta = np.exp(precisions)
            return -multivariate_normal.logpdf(y, np.zeros(count), rows @ rows.T / alpha + np.eye(count) / beta)

        found = [minimize(loss, start, method="Nelder-Mead", options={"fatol": 1e-9}) for start in ((0, 0), (4, 2))]
        best.append(-min(result.fun for result in found))
    assert log_me(rows, labels) == pytest.approx(np.mean(best) / count, abs=1e-6)
    assert log_me(1000 * rows, labels) == pytest.approx(log_me(rows, labels)), "the scale does not matter"


def test_log_me_prefers_vectors_that_separate_the_classes():
    scores = [log_me(*classes(60, 20, 3, distance)) for distance in (0.0, 1.0, 3.0)]
    assert scores == sorted(scores) and scores[2] > scores[0] + 0.3


def test_labels_that_are_fitted_exactly_or_not_at_all_have_a_finite_score():
    labels = [0, 0, 1, 1]
    exact, hopeless = log_me(np.eye(2)[labels], labels), log_me(np.zeros((4, 2)), labels)
    assert math.isfinite(exact) and exact > 1
    # Without vectors the labels are noise around 0: a Gaussian with the mean square of 0, 0, 1, 1.
    assert hopeless == pytest.approx(-0.5 * (math.log(2 * math.pi * 0.5) + 1))


@pytest.mark.parametrize("score", [h_score, log_me])
def test_what_does_not_fit_is_refused(score):
    with pytest.raises(InputError, match="two classes"):
        score(np.eye(3), [1, 1, 1])
    with pytest.raises(InputError, match=r"N labels, got \(3, 3\) and \(2,\)"):
        score(np.eye(3), [0, 1])
    with pytest.raises(InputError, match="NaN"):
        score([[math.nan], [1.0]], [0, 1])

"""H-score and LogME: how well labels can be predicted from vectors, without fitting a classifier.

Both are one formula of all labelled vectors, with no folds: faster than cross-validated logistic regression, and each
label informs the whole score. They are for comparing layers on the same texts and labels; higher is better.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.core.errors import InputError

Floats = NDArray[np.float64]
MAX_STEPS = 1000
TOLERANCE = 1e-8  # relative change of the two precisions at which the search for them ends
PRECISIONS = 1e-8, 1e8  # labels that are fitted exactly, or not at all, would need an infinite one


def h_score(rows: Any, labels: Any, *, shrink: bool = False) -> float:
    """How much of the spread of the vectors is between classes: trace(pinv(cov(f)) cov(E[f | y])).

    It is 0 where all classes have the same mean, and at most the number of classes minus 1. Bao et al. 2019.

    With fewer texts than dimensions it is always that maximum, and says nothing: use `shrink`. The covariance is then
    the one of Ledoit and Wolf 2004, and the score is multiplied by 1 - their shrinkage, as in Ibrahim et al. 2022.

    Args:
        rows: the vectors, (N, D).
        labels: the class of each, (N,); numbers or words.
        shrink: whether to shrink the covariance of the vectors towards a multiple of the identity.

    Returns:
        The score.

    Raises:
        InputError: the labels do not fit the vectors, or there are fewer than two classes.

    Example:
        >>> from transferability import h_score
        >>> h_score([[1.0], [3.0], [5.0], [7.0]], ["a", "a", "b", "b"])  # 4 of the variance of 5 is between classes
        0.8
    """
    rows, one_hot = checked(rows, labels)
    centered = rows - rows.mean(axis=0)
    covariance = centered.T @ centered / len(rows)
    counts = one_hot.sum(axis=0)
    means = one_hot.T @ centered / counts[:, None]
    between = (means * counts[:, None]).T @ means / len(rows)
    if not shrink:
        return float(np.trace(np.linalg.pinv(covariance, hermitian=True) @ between))
    shrinkage = ledoit_wolf_shrinkage(centered)
    scale = np.trace(covariance) / len(covariance)
    if scale == 0:
        return 0.0  # all vectors are equal
    covariance = (1 - shrinkage) * covariance + shrinkage * scale * np.eye(len(covariance))
    return float((1 - shrinkage) * np.trace(np.linalg.pinv(covariance, hermitian=True) @ between))


def ledoit_wolf_shrinkage(centered: Floats) -> float:
    """The share of the identity in Ledoit and Wolf's covariance, from centred rows (N, D)."""
    count, width = centered.shape
    covariance = centered.T @ centered / count
    squared = (covariance**2).sum()
    distance = squared - np.trace(covariance) ** 2 / width  # from the nearest multiple of the identity
    noise = ((centered**2).sum(axis=1) ** 2).sum() / count**2 - squared / count
    return float(min(noise, distance) / distance) if distance > 0 else 1.0


def log_me(rows: Any, labels: Any) -> float:
    """LogME: the largest log evidence of a Bayesian linear regression on the vectors, per text, mean over classes.

    Each class against the rest is a regression of 0 and 1 with no intercept. Its weights have precision alpha and its
    noise precision beta; both are chosen to make the labels most probable. You et al. 2021.

    Args:
        rows: the vectors, (N, D).
        labels: the class of each, (N,); numbers or words.

    Returns:
        The score, in nats per text; it may be negative.

    Raises:
        InputError: the labels do not fit the vectors, or there are fewer than two classes.

    Example:
        >>> from transferability import log_me
        >>> labels = [0, 0, 1, 1]
        >>> log_me([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], labels) > log_me([[1, 0], [0, 1], [1, 0.1], [0.1, 1]], labels)
        True
    """
    rows, one_hot = checked(rows, labels)
    left, singular, _ = np.linalg.svd(rows, full_matrices=False)
    # The evidence does not depend on the scale of the vectors, because alpha follows it.
    spectrum = (singular / max(singular.max(initial=0.0), 1e-300)) ** 2 * len(rows)
    evidence = [largest_log_evidence(spectrum, (left.T @ y) ** 2, float(y @ y), len(rows)) for y in one_hot.T]
    return float(np.mean(evidence)) / len(rows)


def largest_log_evidence(spectrum: Floats, along: Floats, total: float, count: int) -> float:
    """Of one class: `spectrum` has the squared singular values of the rows, `along` the squared projections of y.

    alpha and beta are updated in turn from what the other gives until neither changes (MacKay 1992).
    """
    alpha, beta = 1.0, 1.0
    beyond = max(total - float(along.sum()), 0.0)  # of y, outside what the rows span
    for _ in range(MAX_STEPS):
        precision = alpha + beta * spectrum
        weights = float((beta**2 * spectrum * along / precision**2).sum())  # squared length of the weights
        residual = float((alpha**2 * along / precision**2).sum()) + beyond
        fitted = float((beta * spectrum / precision).sum())  # directions that the labels determine
        free = count - len(spectrum) + float((alpha / precision).sum())  # count - fitted, without cancellation
        new_alpha, new_beta = (
            float(np.clip(known / max(spread, 1e-300), *PRECISIONS))
            for known, spread in ((fitted, weights), (free, residual))
        )
        change = max(abs(math.log(new_alpha / alpha)), abs(math.log(new_beta / beta)))
        alpha, beta = new_alpha, new_beta
        if change < TOLERANCE:
            break
    precision = alpha + beta * spectrum
    weights = float((beta**2 * spectrum * along / precision**2).sum())
    residual = float((alpha**2 * along / precision**2).sum()) + beyond
    determinant = float(np.log1p(beta * spectrum / alpha).sum())  # log |A| minus D log alpha
    fit = count * math.log(beta / (2 * math.pi)) - beta * residual - alpha * weights
    return (fit - determinant) / 2


def checked(rows: Any, labels: Any) -> tuple[Floats, Floats]:
    """The vectors in float64, and one column of 0 and 1 per class."""
    rows = np.asarray(rows, dtype=np.float64)
    names, codes = np.unique(np.asarray(labels), return_inverse=True)
    if rows.ndim != 2 or codes.ndim != 1 or len(rows) != len(codes):
        raise InputError(f"expected vectors (N, D) and N labels, got {rows.shape} and {np.shape(labels)}")
    if not np.isfinite(rows).all():
        raise InputError("the vectors contain NaN or infinity")
    if len(names) < 2:
        raise InputError("the labels need at least two classes")
    return rows, np.eye(len(names))[codes]

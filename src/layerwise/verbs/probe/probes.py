"""Probes on pooled vectors: logistic regression and nearest neighbours. What a probe returns."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.core.errors import MissingExtra
from layerwise.metrics.ops.rows import unit_rows
from layerwise.verbs.probe.labelled import LabelTask

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]  # classes as numbers
Setting = TypeVar("Setting", int, float)
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # sklearn's C, smaller is stronger; vectors are standardised
DEFAULT_PENALTY = 1e-2
MAX_ITERATIONS = 1000
NEIGHBOURS = (1, 5, 10, 20)  # 20 is usual for images (DINO); small classes need fewer
DEFAULT_NEIGHBOURS = 5
ROWS_AT_ONCE = 1024  # test rows whose similarities are in memory together


@dataclass(frozen=True)
class ProbeFit:
    """A trained probe, reduced to what is reported of it."""

    predicted: Codes  # one class per test example
    chosen: Mapping[str, float] = field(default_factory=dict)  # settings that the held-out training examples chose
    weights: Sequence[float] = ()  # of the layers, for the weighted sum
    note: str = ""


def linear_probe(train: NDArray[np.float32], test: NDArray[np.float32], task: LabelTask) -> ProbeFit:
    """Logistic regression on standardised vectors (N, D), fitted on all training examples with the chosen penalty."""
    require_sklearn()

    def predict(fitted: Codes, penalty: float, rows: Floats) -> tuple[Codes, bool]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        mean, scale = standardisation(train[fitted].astype(np.float64))
        model = LogisticRegression(C=penalty, max_iter=MAX_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit((train[fitted] - mean) / scale, task.train[fitted])
        return model.predict((rows - mean) / scale).astype(np.int64), int(model.n_iter_.max()) < MAX_ITERATIONS

    penalty = best_setting(
        PENALTIES, DEFAULT_PENALTY, task, lambda c: predict(task.fitted, c, train[task.held_out].astype(np.float64))[0]
    )
    predicted, converged = predict(np.arange(len(train)), penalty, test.astype(np.float64))
    note = "" if converged else f"the regression did not converge within {MAX_ITERATIONS} steps"
    return ProbeFit(predicted, {"C": penalty}, note=note)


def require_sklearn() -> None:
    if find_spec("sklearn") is None:
        raise MissingExtra("the linear probe needs scikit-learn: pip install scikit-learn")


def standardisation(rows: Floats) -> tuple[Floats, Floats]:
    """The mean and the standard deviation of each dimension; 1 where a dimension is constant."""
    scale = rows.std(axis=0)
    constant = scale <= 1e-12 * np.maximum(1.0, np.abs(rows).max(axis=0))
    return rows.mean(axis=0), np.where(constant, 1.0, scale)


def knn_probe(train: NDArray[np.float32], test: NDArray[np.float32], task: LabelTask) -> ProbeFit:
    """The most frequent class among the k training examples of highest cosine similarity.

    Classes with equally many votes are ordered by the nearest of their examples.
    """
    usable = tuple(k for k in NEIGHBOURS if k <= len(task.fitted))
    default = min(DEFAULT_NEIGHBOURS, len(train))
    voters = neighbours(train[task.held_out], train[task.fitted], max(usable))
    classes = task.train[task.fitted][voters]
    k = best_setting(usable, default, task, lambda k: majority(classes[:, :k], len(task.classes)))
    return ProbeFit(majority(task.train[neighbours(test, train, k)], len(task.classes)), {"k": k})


def neighbours(rows: NDArray[np.float32], among: NDArray[np.float32], k: int) -> Codes:
    """The k most similar of the rows `among`, most similar first, (N, k)."""
    unit, others = (unit_rows(torch.from_numpy(part).double()).numpy() for part in (rows, among))
    parts = [
        np.argsort(-(unit[start : start + ROWS_AT_ONCE] @ others.T), axis=1, kind="stable")[:, :k]
        for start in range(0, len(rows), ROWS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, k), dtype=np.int64)


def majority(classes: Codes, count: int) -> Codes:
    """The most frequent class of each row, (N, k) -> (N,); of equally frequent ones, the first in the row."""
    rows = np.arange(len(classes))
    votes = np.zeros((len(classes), count))
    for place in range(classes.shape[1] - 1, -1, -1):  # the nearest last, so that its bonus decides
        votes[rows, classes[:, place]] = np.floor(votes[rows, classes[:, place]]) + 1 + 0.5 / (place + 1)
    return np.asarray(votes.argmax(axis=1), dtype=np.int64)


def best_setting(
    settings: Sequence[Setting], default: Setting, task: LabelTask, predict: Callable[[Setting], Codes]
) -> Setting:
    """The setting with the highest accuracy on the held-out training examples; the first of equals."""
    if not len(task.held_out):
        return default
    correct = [int((predict(setting) == task.train[task.held_out]).sum()) for setting in settings]
    return settings[int(np.argmax(correct))]

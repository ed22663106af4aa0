"""Probes on pooled vectors: logistic regression and nearest neighbours. What a probe returns."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from layerwise.core.errors import MissingExtra
from layerwise.maps.linear import LinearMap
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
    # the class of each training example that was predicted while it was held out; NEVER if it was not
    validated: Codes = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    calibration: Mapping[str, float] = field(default_factory=dict)
    head: LinearMap | None = None  # from vectors to logits
    head_file: str = ""  # where it is kept


NEVER = -1  # in place of a class
ENOUGH = 1000  # held-out examples to choose on


def linear_probe(train: NDArray[np.float32], test: NDArray[np.float32], task: LabelTask) -> ProbeFit:
    """Logistic regression on standardised vectors (N, D), fitted on all training examples with the chosen penalty.

    The penalty is chosen on training examples that were held out, one part after another until they are enough.
    """
    require_sklearn()
    parts: list[Codes] = []
    for part in (task.held_out, *task.further):
        if len(part) and sum(map(len, parts)) < ENOUGH:
            parts.append(part)
    everything, places = np.arange(len(train)), np.concatenate([*parts, np.zeros(0, dtype=np.int64)])
    found: dict[float, list[torch.Tensor]] = {}
    for part in parts:
        rest, best = np.setdiff1d(everything, part), 0
        for penalty, (head, _) in zip(
            PENALTIES, regressions(train[rest], task.train[rest], task, PENALTIES), strict=True
        ):
            found.setdefault(penalty, []).append(logits(head, train[part]))
            right = int((classes_of(found[penalty][-1]) == task.train[part]).sum())
            if task.sentences is not None and right < best:
                break  # words are many, and the weakest penalties take most of the time
            best = max(best, right)
    of_held_out = {penalty: torch.cat(one) for penalty, one in found.items() if len(one) == len(parts)}
    penalty = DEFAULT_PENALTY
    if of_held_out:
        penalty = max(of_held_out, key=lambda c: int((classes_of(of_held_out[c]) == task.train[places]).sum()))
    ((head, converged),) = regressions(train, task.train, task, [penalty])
    tested = logits(head, test)
    validated, calibration = np.full(len(train), NEVER), {}
    if of_held_out:
        validated[places] = classes_of(of_held_out[penalty])
        calibration = calibrated(of_held_out[penalty], task.train[places], tested, task.test)
    note = "" if converged else f"the regression did not converge within {MAX_ITERATIONS} steps"
    return ProbeFit(
        classes_of(tested), {"C": penalty}, note=note, validated=validated, calibration=calibration, head=head
    )


def regressions(
    rows: NDArray[np.float32], codes: Codes, task: LabelTask, penalties: Sequence[float]
) -> Iterator[tuple[LinearMap, bool]]:
    """The head for each penalty, and whether it converged. Each starts where the last ended, to save steps."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    mean, scale = standardisation(rows.astype(np.float64))
    standardised = (rows - mean) / scale
    model = LogisticRegression(max_iter=MAX_ITERATIONS, warm_start=True)
    for penalty in penalties:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(C=penalty).fit(standardised, codes)
        head = head_of(model.coef_ / scale, model.intercept_, model.classes_, len(task.classes))
        bias = head.bias - head.weight @ torch.from_numpy(mean)
        yield LinearMap(head.weight, bias), int(model.n_iter_.max()) < MAX_ITERATIONS


def logits(head: LinearMap, rows: NDArray[np.float32]) -> torch.Tensor:
    return head(torch.from_numpy(rows).double())


def classes_of(logits: torch.Tensor) -> Codes:
    return np.asarray(logits.argmax(dim=1).numpy())


ABSENT = -1e4  # the logit of a class that no example to fit on has


def head_of(weight: Floats, bias: Floats, present: Codes, count: int) -> LinearMap:
    """The logits of all classes; a regression on two classes has one row, which is divided between them."""
    if len(present) == 2:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    whole = LinearMap(
        torch.zeros(count, weight.shape[1], dtype=torch.float64), torch.full((count,), ABSENT, dtype=torch.float64)
    )
    whole.weight[present], whole.bias[present] = torch.from_numpy(weight), torch.from_numpy(bias)
    return whole


TEMPERATURES = np.logspace(-1, 1, 81)
BINS = 15  # of confidence, for the calibration error


def calibrated(held_out: torch.Tensor, targets: Codes, test: torch.Tensor, tested: Codes) -> dict[str, float]:
    """The temperature that fits held-out examples best, and the calibration error of the test before and after it."""
    known = held_out.gather(1, torch.from_numpy(targets)[:, None])[:, 0] > ABSENT / 2
    if not known.any():
        return {}
    wanted = torch.from_numpy(targets)[known]
    losses = [float(torch.nn.functional.cross_entropy(held_out[known] / t, wanted)) for t in TEMPERATURES]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    return {
        "temperature": temperature, "error_before": calibration_error(test, tested),
        "error_after": calibration_error(test / temperature, tested),
    }  # fmt: skip


def calibration_error(logits: torch.Tensor, targets: Codes) -> float:
    """The expected calibration error: how far accuracy is from confidence, a mean over bins of confidence."""
    confidence, predicted = (part.numpy() for part in logits.softmax(dim=1).max(dim=1))
    right = predicted == targets
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(right[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))


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

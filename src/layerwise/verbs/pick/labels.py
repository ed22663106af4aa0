"""Few labels: a table of 16 to 256 labelled texts or pairs as one more probe, cross-validated."""

import warnings
from importlib.util import find_spec
from textwrap import shorten
from typing import Any

import numpy as np

from layerwise.core.errors import InputError, MissingExtra
from layerwise.inputs.tables import label_column, number_column, text_column
from layerwise.runs.summary import counted
from layerwise.verbs.pick.probes import LABEL_PROBE_PREFIX, Floats, Probe, concordance, mean_per_unit, unit_rows

FOLDS = 5
MIN_LABELS = 16
SPLITS = 2  # cross-validations with different folds, averaged
MAX_ITERATIONS = 100  # iterations of the logistic regression, as in mteb
LABEL_COLUMNS = "text,label (classes) or text1,text2,score (similarity)"


def label_probe(table: Any, seed: int = 0) -> Probe:
    """A probe from a table with the columns text and label, or text1, text2 and score (or sentence1 and sentence2)."""
    if not hasattr(table, "columns"):
        raise InputError(f"labels must be a table or a file with {LABEL_COLUMNS}, not a {type(table).__name__}")
    table = table.rename(columns={"sentence1": "text1", "sentence2": "text2"})
    if len(table) < MIN_LABELS:
        raise InputError(f"{counted(len(table), 'label')}: too few to use; give {MIN_LABELS} to 256")
    if {"text", "label"} <= set(table.columns):
        labels = np.array([str(label) for label in label_column(table, "label", "labels")])
        return class_probe(text_column(table, "text", "labels"), labels, seed)
    if {"text1", "text2", "score"} <= set(table.columns):
        first, second = (text_column(table, name, "labels") for name in ("text1", "text2"))
        return pair_probe(first, second, np.array(number_column(table, "score", "labels"), dtype=np.float64))
    raise InputError(
        f"labels must be {LABEL_COLUMNS}; the columns of this table are {', '.join(map(str, table.columns))}"
    )


def class_probe(texts: list[str], labels: Any, seed: int) -> Probe:
    """Accuracy of logistic regression on the vectors, as in mteb; a unit is a text, left out in turn.

    A class with one text cannot be both learned and tested, so it is left out, with a warning.
    """
    names, counts = np.unique(labels, return_counts=True)
    enough = names[counts >= 2]
    if len(enough) < 2:
        found = ", ".join(f"{name}: {count}" for name, count in zip(names, counts, strict=True))
        raise InputError(f"labels need at least two classes with two texts each; these have {shorten(found, 200)}")
    if len(enough) < len(names):
        left_out = shorten(", ".join(repr(str(name)) for name in names[counts < 2]), 200)
        warnings.warn(f"classes with only one text are left out of the labels: {left_out}", stacklevel=3)
    kept = np.isin(labels, enough)
    texts, labels = [text for text, keep in zip(texts, kept, strict=True) if keep], labels[kept]
    rng = np.random.default_rng(seed)
    splits = [balanced_folds(labels, rng) for _ in range(SPLITS)]

    def score(rows: Floats) -> Floats:
        return np.asarray(np.mean([logistic_accuracy(rows, labels, folds) for folds in splits], axis=0))

    return Probe(LABEL_PROBE_PREFIX, tuple(texts), score, len(texts))


def logistic_accuracy(rows: Floats, labels: Any, folds: Any) -> Floats:
    """1 if a logistic regression fitted on the other folds predicts the label, otherwise 0."""
    if find_spec("sklearn") is None:
        raise MissingExtra("class labels need scikit-learn: pip install scikit-learn")
    from sklearn.linear_model import LogisticRegression

    # With fewer texts than dimensions, coordinates in their span give the same fit and are smaller.
    left_vectors, singular_values, _ = np.linalg.svd(rows, full_matrices=False)
    coordinates, correct = left_vectors * singular_values, np.empty(len(rows))
    for fold in np.unique(folds):
        held_out = folds == fold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "not converged": mteb stops after a hundred steps as well
            model = LogisticRegression(max_iter=MAX_ITERATIONS).fit(coordinates[~held_out], labels[~held_out])
        correct[held_out] = model.predict(coordinates[held_out]) == labels[held_out]
    return correct


def balanced_folds(labels: Any, rng: np.random.Generator) -> Any:
    """Assigns a fold to each text, with each class spread evenly over the folds."""
    folds = np.empty(len(labels), dtype=np.int64)
    for name in np.unique(labels):
        indices = rng.permutation(np.flatnonzero(labels == name))
        folds[indices] = (np.arange(len(indices)) + rng.integers(FOLDS)) % FOLDS
    return folds


def pair_probe(first: list[str], second: list[str], scores: Floats) -> Probe:
    """How often a pair is ranked correctly against a pair of another score; a unit is a pair."""
    if len(np.unique(scores)) < 2:
        raise InputError("all pairs have the same score; there is nothing to rank")

    def score(rows: Floats) -> Floats:
        first_rows, second_rows = np.split(unit_rows(rows), 2)
        return mean_per_unit(concordance((first_rows * second_rows).sum(axis=1), scores), len(scores), projection=True)

    return Probe(LABEL_PROBE_PREFIX, (*first, *second), score, len(scores))

"""Probes: small tests of a layer's vectors that need no user labels.

They use two small sets of sentences that were written for this project, in three languages (proxy_en.tsv and others).
Similar sentences get similar vectors, a paraphrase is found among decoys, a sentence finds the passage that says the
same, and a topic is recognised from its neighbours and by a linear classifier.

Every probe gives one number per sentence of the set; higher is better. So two recipes can be compared sentence by
sentence.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from layerwise.core.errors import InputError
from layerwise.verbs.pick.options import Language

Floats = NDArray[np.float64]
LABEL_PROBE_PREFIX = "labels"  # the names of probes made from the user's labels begin with this
PARTNER = "partner"  # the name of the probe made from the user's pairs
MEANINGS = {
    "pairs": "how often sentences closer in meaning have closer vectors (chance: 50)",
    "paraphrase": "mean reciprocal rank of a paraphrase among hard negatives, times 100",
    "search": "mean reciprocal rank of the passage that says the same as a sentence, times 100",
    "neighbours": "share of the five nearest sentences that are on the same topic, times 100",
    "classifier": "topics that a linear classifier recognises, in percent",
    LABEL_PROBE_PREFIX: "your labels, cross-validated",
    PARTNER: "mean reciprocal rank of a text's partner among all partners, in both directions, times 100",
}
OF_MEDIA = "mean reciprocal rank of the partner among all partners, in both directions, times 100"
GRADES = {"paraphrase": 3, "twist": 2, "related": 1}  # and 0 for a sentence of another topic
NEIGHBOURS = 5
RELATED_PER_PASSAGE = 2  # related sentences in a passage of the search probe
RIDGE = 0.1  # times the mean variance
ProxySet = Literal["first", "second", "both"]
LANGUAGES: Mapping[Language, str] = {"en": "English", "de": "German", "fr": "French"}


@dataclass(frozen=True)
class Probe:
    """The texts it needs, and the scores of their vectors: (texts, D) -> (units,)."""

    name: str
    texts: tuple[str, ...]
    score: Callable[[Floats], Floats]
    units: int = 0  # how many scores it gives, where that decides its weight


def is_own_data(probe: str) -> bool:
    """True for a probe on the user's labels or pairs, by its name."""
    return probe.startswith((LABEL_PROBE_PREFIX, PARTNER))


@cache
def proxy_items(which: ProxySet = "both", language: Language = "en") -> tuple[Mapping[str, str], ...]:
    """The bundled sentences: set, topic, sentence, paraphrase, a decoy with the same words, and a related sentence.

    The two sets have no topic in common: 54 sentences on nine topics, and 72 on twelve. The languages have the same
    topics; their sentences are not translations of one another.
    """
    if which not in ("first", "second", "both"):
        raise InputError(f"which={which!r} is not one of first, second, both")
    text = (files("layerwise.verbs.pick") / f"proxy_{language}.tsv").read_text(encoding="utf-8")
    items = csv.DictReader(text.splitlines(), delimiter="\t")
    return tuple(item for item in items if which in (item["set"], "both"))


def proxy_texts(language: Language = "en") -> list[str]:
    """Every bundled sentence of a language."""
    columns = ("sentence", "paraphrase", "twist", "related")
    return [item[column] for item in proxy_items(language=language) for column in columns]


def proxy_probes(which: ProxySet = "both", language: Language = "en") -> list[Probe]:
    """The probes on the first set of bundled sentences, the second, or both; a unit is a sentence."""
    items = proxy_items(which, language)
    count = len(items)
    sentences, paraphrases, twists, related = (
        tuple(item[column] for item in items) for column in ("sentence", "paraphrase", "twist", "related")
    )
    topics = np.array([item["topic"] for item in items])
    # A sentence of another topic: shifted by half the set.
    unrelated = np.roll(np.arange(count), count // 2 + 1)
    grades = np.repeat([*GRADES.values(), 0], count)

    def pairs(rows: Floats) -> Floats:
        """How often a pair of sentences is ranked correctly against a pair of another grade."""
        first, *others = np.split(unit_rows(rows), 4)
        second = np.concatenate([*others, first[unrelated]])
        return mean_per_unit(concordance((np.tile(first, (4, 1)) * second).sum(axis=1), grades), count, projection=True)

    def paraphrase(rows: Floats) -> Floats:
        """Reciprocal rank of the paraphrase among all paraphrases and twists."""
        first, para, twist = np.split(unit_rows(rows), 3)
        return reciprocal_ranks(first @ np.concatenate([para, twist]).T, np.arange(count))

    def search(rows: Floats) -> Floats:
        """Reciprocal rank of the sentence's passage among all passages."""
        queries, documents = np.split(unit_rows(rows), 2)
        return reciprocal_ranks(queries @ documents.T, np.arange(count))

    def neighbours(rows: Floats) -> Floats:
        """Share of the five nearest sentences of other items that are on the same topic."""
        rows = unit_rows(rows)
        similarity = rows @ rows.T
        item = np.tile(np.arange(count), 3)
        similarity[item[:, None] == item] = -np.inf
        nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :NEIGHBOURS]
        same = np.tile(topics, 3)[nearest] == np.tile(topics, 3)[:, None]
        return mean_per_unit(same.mean(axis=1), count)

    def classifier(rows: Floats) -> Floats:
        """Accuracy of a ridge classifier of topics, with six-fold cross-validation over items."""
        item = np.tile(np.arange(count), 3)
        correct = ridge_accuracy(rows, np.tile(topics, 3), folds=item % 6)
        return mean_per_unit(correct, count)

    return [
        Probe("pairs", sentences + paraphrases + twists + related, pairs),
        Probe("paraphrase", sentences + paraphrases + twists, paraphrase),
        Probe("search", sentences + proxy_passages(items), search),
        Probe("neighbours", sentences + paraphrases + related, neighbours),
        Probe("classifier", sentences + paraphrases + related, classifier),
    ]


def proxy_passages(items: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """A passage for each sentence: its paraphrase, and then the related sentences of the next items on its topic.

    A related sentence is in several passages, so that knowing the topic does not find the right one.
    """
    passages = []
    for item in items:
        same_topic = [other for other in items if other["topic"] == item["topic"]]
        place = same_topic.index(item)
        others = [same_topic[(place + step) % len(same_topic)] for step in range(1, RELATED_PER_PASSAGE + 1)]
        passages.append(" ".join([item["paraphrase"], *(other["related"] for other in others)]))
    return tuple(passages)


def unit_rows(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def concordance(values: Floats, grades: NDArray[Any]) -> Floats:
    """For each value, the share of values of other grades that it is ordered correctly against; ties count half."""
    higher = np.sign(grades[:, None] - grades)
    agree = np.sign(values[:, None] - values) * higher
    other = higher != 0
    return np.asarray(((agree + 1) / 2 * other).sum(axis=1) / other.sum(axis=1))


def mean_per_unit(values: Floats, count: int, *, projection: bool = False) -> Floats:
    """Means over the repeats of each unit. `projection` doubles the deviations, for means over pairs of units."""
    units = values.reshape(-1, count).mean(axis=0)
    return np.asarray(units.mean() + 2 * (units - units.mean()) if projection else units)


def reciprocal_ranks(similarity: Floats, target: NDArray[np.int64]) -> Floats:
    """1 / rank of the right column in each row; ties count against it."""
    target_similarity = similarity[np.arange(len(similarity)), target]
    return np.asarray(1 / (similarity >= target_similarity[:, None]).sum(axis=1))


def ridge_accuracy(rows: Floats, labels: NDArray[np.str_], folds: NDArray[np.int64]) -> Floats:
    """1 if a one-vs-rest ridge regression fitted on the other folds predicts the label, otherwise 0."""
    names, codes = np.unique(labels, return_inverse=True)
    correct = np.empty(len(rows))
    for fold in np.unique(folds):
        held_out = folds == fold
        mean = rows[~held_out].mean(axis=0)
        x, held_out_rows = rows[~held_out] - mean, rows[held_out] - mean
        gram = x @ x.T  # fewer rows than dimensions
        strength = RIDGE * np.trace(gram) / len(gram) + 1e-12
        y = 2.0 * (codes[~held_out][:, None] == np.arange(len(names))) - 1
        scores = held_out_rows @ x.T @ np.linalg.solve(gram + strength * np.eye(len(gram)), y)
        correct[held_out] = scores.argmax(axis=1) == codes[held_out]
    return correct

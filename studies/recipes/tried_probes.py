"""Probes that were tried and that `pick` does not use: one on the bundled sentences, and those on texts of one's own.

On own texts, the halves of a passage find each other, a perturbed text finds its original, and texts that share rare
words are close.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from scipy.stats import rankdata

from layerwise.inputs.perturbations.text import make_view
from layerwise.verbs.pick.probes import Probe, ProxySet, proxy_items, reciprocal_ranks, unit_rows

Floats = NDArray[np.float64]
TEMPERATURE = 0.05  # of the contrastive probe, as in L3Prune and SimCSE
MIN_PASSAGE_WORDS = 12  # words: the halves of shorter texts say too little
MAX_PASSAGES = 256
MIN_LEXICAL_TEXTS = 4  # a rank correlation needs at least three other texts


def contrastive_probe(which: ProxySet = "both") -> Probe:
    """The contrastive loss on the first set of bundled sentences, the second, or both."""
    items = proxy_items(which)
    texts = tuple(item[column] for column in ("sentence", "paraphrase", "twist") for item in items)

    def contrastive(rows: Floats) -> Floats:
        """Minus the contrastive loss: the log-probability of the paraphrase among all paraphrases and twists."""
        first, para, twist = np.split(unit_rows(rows), 3)
        similarity = first @ np.concatenate([para, twist]).T
        return np.asarray(np.diag(log_softmax(similarity / TEMPERATURE, axis=1)))

    return Probe("contrastive", texts, contrastive)


def user_text_probes(texts: Sequence[str], seed: int = 0) -> list[Probe]:
    """The probes on the user's own texts; a unit is a text, for `halves` and `views` one long enough to be halved."""
    distinct = list(dict.fromkeys(texts))
    passages = [text for text in distinct if len(text.split()) >= MIN_PASSAGE_WORDS][:MAX_PASSAGES]
    probes = []
    if len(passages) >= 2:
        first, second = zip(*(split_in_half(text) for text in passages), strict=True)
        views = tuple(make_view(text, seed, text, 1) for text in passages)
        probes += [Probe("halves", first + second, find), Probe("views", views + tuple(passages), find)]
    if len(distinct) >= MIN_LEXICAL_TEXTS:
        probes.append(lexical_probe(distinct[:MAX_PASSAGES]))
    return probes


def find(rows: Floats) -> Floats:
    """Reciprocal rank of the counterpart among all counterparts."""
    first, second = np.split(unit_rows(rows), 2)
    return reciprocal_ranks(first @ second.T, np.arange(len(first)))


def lexical_probe(texts: Sequence[str]) -> Probe:
    """For each text, the rank correlation over all other texts of vector cosines with word overlap."""

    @cache  # computed only where the probe is used, and then once for all layers
    def overlap() -> Floats:
        return word_overlap(texts)

    def lexical(rows: Floats) -> Floats:
        rows = unit_rows(rows)
        return row_spearman(rows @ rows.T, overlap())

    return Probe("lexical", tuple(texts), lexical)


def word_overlap(texts: Sequence[str]) -> Floats:
    """The cosine of TF-IDF vectors for each pair of texts: the words that they share, rare ones counting more."""
    counts = [Counter(re.findall(r"\w+", text.lower())) for text in texts]
    in_texts = Counter(word for words in counts for word in words)
    idf = {word: np.log((1 + len(texts)) / (1 + number)) + 1 for word, number in in_texts.items()}
    place = {word: column for column, word in enumerate(w for w, number in in_texts.items() if number > 1)}
    rows = np.zeros((len(texts), len(place)))  # a word of a single text adds to its length only
    lengths = np.zeros(len(texts))
    for row, words in enumerate(counts):
        lengths[row] = np.sqrt(sum((number * idf[word]) ** 2 for word, number in words.items()))
        for word in words.keys() & place.keys():
            rows[row, place[word]] = words[word] * idf[word]
    rows /= np.maximum(lengths, 1e-12)[:, None]
    overlap = rows @ rows.T
    np.fill_diagonal(overlap, 1.0)
    return np.asarray(overlap)


def row_spearman(a: Floats, b: Floats) -> Floats:
    """Spearman's correlation of two square matrices, row by row without the diagonal; 0 where a row is constant."""
    others = ~np.eye(len(a), dtype=bool)
    # Rounded, so that texts with equal words tie whatever the order of summation.
    ranks = (rankdata(m[others].reshape(len(m), -1).round(12), axis=1) for m in (a, b))
    first, second = (unit_rows(r - r.mean(axis=1, keepdims=True)) for r in ranks)
    return np.asarray((first * second).sum(axis=1))


def split_in_half(text: str) -> tuple[str, str]:
    words = text.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])

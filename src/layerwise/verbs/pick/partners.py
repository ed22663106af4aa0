"""Pairs of texts that belong together, without scores: each text has to find its partner among all partners."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from layerwise.core.errors import InputError
from layerwise.inputs.options import PairsLike
from layerwise.inputs.pairs import read_pairs
from layerwise.runs.summary import counted
from layerwise.verbs.pick.probes import PARTNER, Floats, Probe, unit_rows
from layerwise.verbs.shrink.texts import words_of

MIN_PAIRS, MAX_PAIRS = 16, 1024


def partner_probe(given: PairsLike, seed: int = 0) -> Probe:
    """The mean reciprocal rank of a text's partner, averaged over both directions; a unit is a first text.

    Texts that have several partners are not wrong answers for one another. Pairs of twice the same text show nothing
    and are left out. Of more than MAX_PAIRS pairs a random sample is used.
    """
    name, rows = read_pairs(given)
    pairs = list(dict.fromkeys((query, document) for query, document in rows if words_of(query) and words_of(document)))
    useful = [pair for pair in pairs if words_of(pair[0]) != words_of(pair[1])]
    if len(useful) < len(pairs):
        warnings.warn(f"{name}: {len(pairs) - len(useful)} pairs of the same text are left out", stacklevel=5)
    if len(useful) > MAX_PAIRS:
        kept = np.random.default_rng(seed).choice(len(useful), MAX_PAIRS, replace=False)
        useful = [useful[i] for i in sorted(kept)]
    firsts, seconds = (list(dict.fromkeys(texts)) for texts in zip(*useful, strict=True)) if useful else ([], [])
    if min(len(firsts), len(seconds)) < MIN_PAIRS:
        raise InputError(
            f"{name}: {counted(len(useful), 'different pair')} of {counted(len(firsts), 'first text')} and "
            f"{counted(len(seconds), 'second text')} are too few to choose a layer; give at least {MIN_PAIRS} of each"
        )
    return Probe(PARTNER, (*firsts, *seconds), partner_score(firsts, seconds, useful), len(firsts))


def partner_score(
    firsts: Sequence[str], seconds: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> Callable[[Floats], Floats]:
    """The function from vectors to one score per first text."""
    rows_of, columns_of = ({text: i for i, text in enumerate(texts)} for texts in (firsts, seconds))
    first, second = (np.array(side) for side in zip(*((rows_of[a], columns_of[b]) for a, b in pairs), strict=True))
    related = np.array([[text == other for other in seconds] for text in firsts])
    related[first, second] = True

    def score(vectors: Floats) -> Floats:
        one, other = np.split(unit_rows(vectors), [len(firsts)])
        similarity = one @ other.T
        wrong = np.where(related, -np.inf, similarity)
        own = similarity[first, second]
        forwards = 1 / (1 + (wrong[first] >= own[:, None]).sum(axis=1))
        backwards = 1 / (1 + (wrong[:, second] >= own).sum(axis=0))
        sums = np.bincount(first, weights=(forwards + backwards) / 2, minlength=len(firsts))
        return np.asarray(sums / np.bincount(first, minlength=len(firsts)))

    return score

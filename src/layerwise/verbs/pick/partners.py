"""Pairs of inputs that belong together, without scores: each has to find its partner among all partners."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.core.errors import InputError
from layerwise.inputs.media import Medium
from layerwise.inputs.options import MediaPairsLike, PairsLike
from layerwise.inputs.pairs import read_media_pairs, read_pairs
from layerwise.inputs.source import Payload, content_key
from layerwise.runs.summary import counted
from layerwise.verbs.pick.probes import PARTNER, Floats, Probe, unit_rows
from layerwise.verbs.shrink.texts import words_of

MIN_PAIRS, MAX_PAIRS = 16, 1024


def partner_probe(given: PairsLike, seed: int = 0) -> Probe:
    """The probe of pairs of texts; texts that differ in spaces and capitals only count as the same."""
    name, rows = read_pairs(given)
    pairs = list(dict.fromkeys((query, document) for query, document in rows if words_of(query) and words_of(document)))
    return probe_of(name, pairs, words_of, seed, "text")


def media_partner_probe(given: MediaPairsLike, medium: Medium, seed: int = 0) -> tuple[Probe, Mapping[str, Payload]]:
    """The probe of pairs of clips or images, whose texts are hashes of their content; and what these stand for."""
    name, rows = read_media_pairs(given, medium)
    keys = [(content_key(first), content_key(second)) for first, second in rows]
    payloads = {key: payload for of, row in zip(keys, rows, strict=True) for key, payload in zip(of, row, strict=True)}
    return probe_of(name, list(dict.fromkeys(keys)), str, seed, medium.unit), payloads


def probe_of(name: str, pairs: Sequence[tuple[str, str]], content: Callable[[str], Any], seed: int, unit: str) -> Probe:
    """The mean reciprocal rank of an input's partner, averaged over both directions; a unit is a first input.

    Inputs that have several partners are not wrong answers for one another. Pairs of twice the same `content` show
    nothing and are left out. Of more than MAX_PAIRS pairs a random sample is used.
    """
    useful = [pair for pair in pairs if content(pair[0]) != content(pair[1])]
    if len(useful) < len(pairs):
        warnings.warn(f"{name}: {len(pairs) - len(useful)} pairs of the same {unit} are left out", stacklevel=6)
    if len(useful) > MAX_PAIRS:
        kept = np.random.default_rng(seed).choice(len(useful), MAX_PAIRS, replace=False)
        useful = [useful[i] for i in sorted(kept)]
    firsts, seconds = (list(dict.fromkeys(texts)) for texts in zip(*useful, strict=True)) if useful else ([], [])
    if min(len(firsts), len(seconds)) < MIN_PAIRS:
        raise InputError(
            f"{name}: {counted(len(useful), 'different pair')} of {counted(len(firsts), f'first {unit}')} "
            f"and {counted(len(seconds), f'second {unit}')} are too few to choose a layer; give at least {MIN_PAIRS} "
            "of each"
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

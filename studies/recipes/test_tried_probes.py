"""Each probe gives the numbers that a hand or another library computes. Run by hand: `pytest` with this file."""

import math

import numpy as np
import pytest
from tried_probes import TEMPERATURE, contrastive_probe, row_spearman, user_text_probes, word_overlap

from layerwise.verbs.pick.probes import proxy_items

RNG = np.random.default_rng(0)
COLUMNS = ("sentence", "paraphrase", "twist", "related")


def test_contrastive_by_hand():
    """One sentence whose paraphrase has cosine 1, whose twist has cosine 0.8, and nothing else near."""
    count = len(proxy_items("first"))
    vectors = np.eye(3 * count)
    vectors[count] = vectors[0]  # the first paraphrase
    vectors[2 * count, :] = 0.8 * vectors[0] + 0.6 * vectors[2 * count]  # the first twist
    score = contrastive_probe("first").score(7 * vectors)
    expected = 20 - math.log(math.exp(20) + math.exp(16) + (2 * count - 2))
    assert TEMPERATURE == 0.05 and score[0] == pytest.approx(expected)
    assert score[1] == pytest.approx(-math.log(2 * count)), "all cosines are 0: every candidate is as probable"


def test_contrastive_is_torchs_cross_entropy():
    import torch

    found = contrastive_probe()
    rows = torch.from_numpy(RNG.normal(size=(len(found.texts), 20)))
    first, *others = torch.nn.functional.normalize(rows).split(len(rows) // 3)
    logits = first @ torch.cat(others).T / 0.05
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(first)), reduction="none")
    assert found.score(rows.numpy()) == pytest.approx(-loss.numpy())


def test_halves_and_views_find_each_other():
    texts = [f"{word} " * 14 for word in ("alpha", "beta", "gamma")] + ["too short"]
    halves, views, lexical = user_text_probes(texts)
    assert len(halves.texts) == 6 and halves.texts[0] == " ".join(["alpha"] * 7)
    same = np.concatenate([np.eye(3), np.eye(3)])
    assert halves.score(same) == pytest.approx([1, 1, 1]) and views.texts[3:] == tuple(texts[:3])
    assert lexical.texts == tuple(texts)
    assert user_text_probes(["too short"]) == []


def test_word_overlap_is_scikit_learns_tf_idf():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [item[column] for item in proxy_items()[:30] for column in COLUMNS]
    rows = TfidfVectorizer(token_pattern=r"(?u)\w+").fit_transform(texts)
    assert word_overlap(texts) == pytest.approx((rows @ rows.T).toarray())


def test_lexical_by_hand():
    """Four texts: the first two share a word, and each of the others stands alone."""
    texts = ["red apple", "red pear", "blue sky", "green sea", "green sea", "red apple"]
    (lexical,) = user_text_probes(texts)
    assert lexical.texts == ("red apple", "red pear", "blue sky", "green sea"), "repeated texts count once"
    # For the first text the overlaps with the others are (x, 0, 0): ranks 3, 1.5, 1.5.
    near = np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    rho = lexical.score(near)
    assert rho[0] == pytest.approx(1.0)  # cosines (high, 0, 0): the same ranks
    # For the second they are (x, 0, 0) and the cosines (high, low, 0), ranks 3, 2, 1: rho = 1.5 / sqrt(1.5 * 2).
    assert rho[1] == pytest.approx(1.5 / math.sqrt(3))
    assert rho[2] == rho[3] == 0, "a text that shares no word says nothing"
    far = np.array([[1.0, 0.0], [-1.0, 0.1], [0.0, 1.0], [0.0, 1.0]])
    assert lexical.score(far)[0] == pytest.approx(-1.0)


def test_row_spearman_is_scipys():
    from scipy.stats import spearmanr

    a, b = (RNG.normal(size=(12, 12)).round(1) for _ in range(2))
    others = [[j for j in range(12) if j != i] for i in range(12)]
    expected = [spearmanr(a[i, keep], b[i, keep]).statistic for i, keep in enumerate(others)]
    assert row_spearman(a, b) == pytest.approx(expected)

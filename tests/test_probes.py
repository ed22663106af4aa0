"""Probes: the bundled sentences are whole, and each probe gives the numbers that a hand or another library computes."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from layerwise.core.errors import InputError
from layerwise.verbs.pick.probes import (
    TEMPERATURE,
    proxy_items,
    proxy_passages,
    proxy_probes,
    row_spearman,
    user_text_probes,
    word_overlap,
)
from layerwise.verbs.pick.result import MEANINGS

RNG = np.random.default_rng(0)
COLUMNS = ("sentence", "paraphrase", "twist", "related")


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def probe(name, which="both"):
    (found,) = [probe for probe in proxy_probes(which) if probe.name == name]
    return found


@pytest.mark.parametrize(("which", "topics"), [("first", 9), ("second", 12), ("both", 21)])
def test_a_bundled_set_is_whole(which, topics):
    items = proxy_items(which)
    assert list(pd.Series([item["topic"] for item in items]).value_counts()) == [6] * topics
    texts = [item[column] for item in items for column in COLUMNS]
    assert len(set(texts)) == 4 * 6 * topics and all(text == text.strip() and len(text) > 15 for text in texts)


def test_the_two_sets_share_no_topic_and_no_sentence():
    first, second = proxy_items("first"), proxy_items("second")
    assert proxy_items() == first + second
    for columns in (("topic",), COLUMNS):
        one, other = ({item[column] for item in items for column in columns} for items in (first, second))
        assert not one & other
    assert not {"news", "sport", "space"} & {item["topic"] for item in first + second}
    with pytest.raises(InputError, match="first, second, both"):
        proxy_items("third")


def test_a_twist_has_more_of_the_words_than_the_paraphrase_has():
    """So that a probe cannot be passed by counting words; and sentences are of 5 to 20 words."""
    for item in proxy_items("second"):
        sentence, paraphrase, twist = (words(item[column]) for column in COLUMNS[:3])
        shared = len(sentence & twist) / len(sentence | twist)
        assert shared > len(sentence & paraphrase) / len(sentence | paraphrase), item["sentence"]
        assert all(5 <= len(item[column].split()) <= 20 for column in COLUMNS), item


@pytest.mark.parametrize("which", ["first", "second", "both"])
def test_the_unrelated_sentence_of_pairs_is_of_another_topic(which):
    """A topic per dimension: only sentences of the same topic are alike, so no unrelated pair may be similar."""
    items, found = proxy_items(which), probe("pairs", which)
    topics = [item["topic"] for item in items]
    rows = np.tile([[float(topic == name) for name in sorted(set(topics))] for topic in topics], (4, 1))
    # Every pair but the unrelated has cosine 1: a pair is right against the unrelated, and ties with the other two.
    assert found.score(rows).mean() == pytest.approx((3 * (1 + 0.5 + 0.5) / 3 + 1) / 4)


@pytest.mark.parametrize("which", ["first", "second", "both"])
def test_a_perfect_embedding_has_perfect_probes(which):
    """Vectors made of meaning alone: the topic, the item, and how far a variant is from it."""
    items = proxy_items(which)
    count = len(items)
    topic, item = np.repeat(np.eye(count // 6), 6, axis=0), np.eye(count)
    made = {"sentence": item, "paraphrase": item, "twist": 0.6 * item, "related": 0.2 * item}
    made = {
        name: np.concatenate([topic, part, np.eye(4)[[k] * count] * (k > 1)], axis=1)
        for k, (name, part) in enumerate(made.items())
    }
    vectors = {entry[name]: made[name][i] for i, entry in enumerate(items) for name in made}
    vectors |= {passage: made["paraphrase"][i] for i, passage in enumerate(proxy_passages(items))}
    for found in proxy_probes(which):
        score = found.score(np.array([vectors[text] for text in found.texts]))
        noise = found.score(RNG.normal(size=(len(found.texts), 30)))
        assert score.shape == noise.shape == (count,) and found.name in MEANINGS
        if found.name == "contrastive":  # a log-probability: 0 is perfect, and guessing gives less than -log(2 N)
            assert score.mean() > -0.1 and noise.mean() < -math.log(2 * count)
        else:
            assert score.mean() > 0.95 and noise.mean() < 0.6, (found.name, score.mean(), noise.mean())


def test_contrastive_by_hand():
    """One sentence whose paraphrase has cosine 1, whose twist has cosine 0.8, and nothing else near."""
    count = len(proxy_items("first"))
    vectors = np.eye(3 * count)
    vectors[count] = vectors[0]  # the first paraphrase
    vectors[2 * count, :] = 0.8 * vectors[0] + 0.6 * vectors[2 * count]  # the first twist
    score = probe("contrastive", "first").score(7 * vectors)
    expected = 20 - math.log(math.exp(20) + math.exp(16) + (2 * count - 2))
    assert TEMPERATURE == 0.05 and score[0] == pytest.approx(expected)
    assert score[1] == pytest.approx(-math.log(2 * count)), "all cosines are 0: every candidate is as probable"


def test_contrastive_is_torchs_cross_entropy():
    import torch

    found = probe("contrastive")
    rows = torch.from_numpy(RNG.normal(size=(len(found.texts), 20)))
    first, *others = torch.nn.functional.normalize(rows).split(len(rows) // 3)
    logits = first @ torch.cat(others).T / 0.05
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(first)), reduction="none")
    assert found.score(rows.numpy()) == pytest.approx(-loss.numpy())


def test_search_passages_hold_the_paraphrase_and_what_others_say_on_the_topic():
    items = proxy_items("second")
    passages = proxy_passages(items)
    assert passages[0] == f"{items[0]['paraphrase']} {items[1]['related']} {items[2]['related']}"
    assert passages[11] == f"{items[11]['paraphrase']} {items[6]['related']} {items[7]['related']}", "within the topic"
    found = probe("search", "second")
    assert found.texts == (*(item["sentence"] for item in items), *passages)
    # The first sentence is nearest to the second passage and then to its own; the others find theirs.
    rows = np.concatenate([np.eye(72), np.eye(72)])
    rows[0, :2] = 0.6, 0.8
    assert found.score(rows) == pytest.approx([0.5] + [1.0] * 71)


def test_halves_and_views_find_each_other():
    texts = [f"{word} " * 14 for word in ("alpha", "beta", "gamma")] + ["too short"]
    halves, views, lexical = user_text_probes(texts)
    assert len(halves.texts) == 6 and halves.texts[0] == " ".join(["alpha"] * 7)
    same = np.concatenate([np.eye(3), np.eye(3)])
    assert halves.score(same) == pytest.approx([1, 1, 1]) and views.texts[3:] == tuple(texts[:3])
    assert lexical.texts == tuple(texts)
    assert user_text_probes(["too short"]) == []
    assert {halves.name, views.name, lexical.name} <= set(MEANINGS)


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

"""Probes: the bundled sentences are whole, and each probe gives the numbers that a hand or another library computes."""

import re

import numpy as np
import pandas as pd
import pytest

from layerwise.core.errors import InputError
from layerwise.verbs.pick.probes import (
    LANGUAGES,
    proxy_items,
    proxy_passages,
    proxy_probes,
    proxy_texts,
)
from layerwise.verbs.pick.result import MEANINGS

RNG = np.random.default_rng(0)
COLUMNS = ("sentence", "paraphrase", "twist", "related")


def words(text):
    return set(re.findall(r"\w+", text.lower()))


def probe(name, which="both"):
    (found,) = [probe for probe in proxy_probes(which) if probe.name == name]
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("which", "topics"), [("first", 9), ("second", 12), ("both", 21)])
def test_a_bundled_set_is_whole(which, topics, language):
    items = proxy_items(which, language)
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


@pytest.mark.parametrize("language", ["de", "fr"])
def test_sentences_of_other_languages_are_as_hard(language):
    """A twist shares most words with its sentence, a paraphrase few; no sentence is one of another language."""
    for item, english in zip(proxy_items(language=language), proxy_items(), strict=True):
        assert (item["set"], item["topic"]) == (english["set"], english["topic"])
        sentence, paraphrase, twist = (words(item[column]) for column in COLUMNS[:3])
        shared, by_paraphrase = (len(sentence & other) / len(sentence | other) for other in (twist, paraphrase))
        assert len(sentence & twist) >= len(sentence) / 2 and by_paraphrase <= 0.4, item
        assert shared > by_paraphrase and all(4 <= len(item[column].split()) <= 20 for column in COLUMNS), item
    assert not set(proxy_texts(language)) & {text for one in LANGUAGES if one != language for text in proxy_texts(one)}


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
        assert score.mean() > 0.95 and noise.mean() < 0.6, (found.name, score.mean(), noise.mean())


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

"""Views: the same for everyone, edits in the proportions of nlpaug, and fast."""

import random as global_random
import time
from random import Random

import pytest

from layerwise.inputs.perturbations import text as views
from layerwise.inputs.perturbations.text import make_view
from layerwise.inputs.text import demo_texts

TEXT = "The lighthouse keeper counted seven ships before breakfast, and wrote each name down."

KNOWN = "The lCighthaouNse keepF4 c ounted se ven s hq(p bLeforre b+e3#a kVaDt, and 93Dl6te Aavn nSm4 dow n."


def test_a_view_depends_on_seed_id_and_number_alone():
    state = global_random.getstate()
    first = make_view(TEXT, 0, "a", 1)
    global_random.seed(5)
    assert make_view(TEXT, 0, "a", 1) == first
    assert first != TEXT
    assert len({make_view(TEXT, s, i, n) for s in (0, 1) for i in ("a", "b") for n in (1, 2)}) == 8
    global_random.setstate(state)
    make_view(TEXT, 0, "a", 2)
    assert global_random.getstate() == state, "the global random state is not touched"


def test_a_known_view_stays_the_same_over_versions():
    assert make_view(TEXT, 0, "a", 1) == KNOWN


def test_nothing_to_change_is_no_error():
    for text in ("", " ", "a b c", "...", "😀😀😀😀 ok", "日本語のテキスト", "x" * 10_000):
        assert isinstance(make_view(text, 0, "id", 1), str)


def words(text):
    return views.WORD.findall(text)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_a_share_p_of_the_tokens_is_split(p):
    text = "wordy " * 18  # 18 tokens
    split = views.split_words(text, Random(0), p)
    assert len(words(split)) - 18 == min(views.edit_count(18, p), 10)
    assert split.replace(" ", "") == text.replace(" ", "")


def test_short_words_and_spacing_are_left_alone():
    text = "an ox,  in\tthe (old) mud"
    assert make_view(text, 0, "id", 1) == text


def test_each_edit_does_what_its_name_says():
    word, random = "abcdefghij", Random(1)
    assert len(views.insert(word, random, 0.3)) == 13
    assert len(views.delete(word, random, 0.3)) == 7
    substituted = views.substitute(word, random, 0.3)
    assert sum(a != b for a, b in zip(word, substituted, strict=True)) in (2, 3)
    assert sorted(views.swap(word, random, 0.3)) == sorted(word)
    mistyped = views.mistype_word(word, random, 0.3)
    changed = [(a, b) for a, b in zip(word, mistyped, strict=True) if a != b]
    assert len(changed) == 3 and all(b in views.NEIGHBOURS[a] for a, b in changed)
    assert set(views.NEIGHBOURS["s"]) == set("qweadzxcQWEADZXC")


def test_views_are_made_twice_as_fast_as_nlpaug_makes_them():
    """The same three steps by both, in turn, so that a busy machine slows both; some four times, as a rule."""
    import nlpaug.augmenter.char as nac
    import nlpaug.augmenter.word as naw

    steps = [naw.SplitAug(), nac.RandomCharAug(), nac.KeyboardAug()]
    texts = [text[:120] for text in demo_texts()[:20]]

    def theirs(text):
        for step in steps:
            text = step.augment(text)[0]

    def seconds(perturb):
        start = time.process_time()
        for text in texts:
            perturb(text)
        return time.process_time() - start

    ratios = [seconds(theirs) / seconds(lambda text: make_view(text, 0, text, 1)) for _ in range(5)]
    assert sorted(ratios)[2] > 2


ACTIONS = {"insert": views.insert, "substitute": views.substitute, "swap": views.swap, "delete": views.delete}


def edits_of(before, after):
    """Share of words touched, and letters added, removed or replaced, a word."""
    old, new = before.split(), after.split()
    touched = sum(a != b for a, b in zip(old, new, strict=True))
    longer = sum(len(b) - len(a) for a, b in zip(old, new, strict=True))
    other = sum(x != y for a, b in zip(old, new, strict=True) if len(a) == len(b) for x, y in zip(a, b, strict=True))
    return touched / len(old), longer / len(old), other / len(old)


@pytest.mark.parametrize("kind", [*ACTIONS, "keyboard", "split"])
def test_edits_are_distributed_as_nlpaugs(kind):
    """The same texts through both, edits counted: the means agree within sampling error (four standard errors)."""
    char = pytest.importorskip("nlpaug.augmenter.char")
    word = pytest.importorskip("nlpaug.augmenter.word")
    import numpy as np

    np.random.seed(0)
    global_random.seed(0)
    # Words alone: nlpaug re-spaces punctuation, which would count as edits here.
    texts = [" ".join(words(text)[:25]) for text in demo_texts() for _ in range(3)]
    if kind == "split":
        theirs, mine = word.SplitAug().augment(texts), [views.split_words(t, Random(i)) for i, t in enumerate(texts)]
        added = lambda many: [len(words(b)) - len(words(a)) for a, b in zip(texts, many, strict=True)]  # noqa: E731
        assert added(mine) == added(theirs)
        return
    if kind == "keyboard":
        augmenter = char.KeyboardAug()
        table = augmenter.model.model.items()  # which has " t" beside u, a slip that adds a word
        augmenter.model.model = {key: [near for near in keys if len(near) == 1] for key, keys in table}
        theirs, mine = augmenter.augment(texts), [views.mistype(t, Random(i)) for i, t in enumerate(texts)]
    else:
        edits = (ACTIONS[kind],)
        theirs = char.RandomCharAug(action=kind).augment(texts)
        mine = [views.edit_letters(t, Random(i), edits=edits) for i, t in enumerate(texts)]
    a = np.array([edits_of(*pair) for pair in zip(texts, mine, strict=True)])
    b = np.array([edits_of(*pair) for pair in zip(texts, theirs, strict=True)])
    error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b)) + 1e-9
    assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4 * error).all(), (a.mean(axis=0), b.mean(axis=0), error)

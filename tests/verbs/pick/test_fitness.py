"""The bundled sentences judge only models whose tokenizer reads them; the numbers are those of a count by hand."""

import re

import pytest
from families import make_tokenizer, save_byte_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import layerwise
from layerwise.core.errors import InputError
from layerwise.verbs.pick.fitness import (
    FEWEST_COMMON,
    common_words,
    require_readable,
    tokenizer_fit,
    warn_of_other_language,
    words_in,
)
from layerwise.verbs.pick.probes import LANGUAGES, proxy_texts

GERMAN = ["Der Hund schläft unter dem Tisch und die Katze sitzt auf dem Fenster, weil es draußen regnet."] * 9


def letter_tokenizer(*more):
    """It reads lower-case letters, one by one, and the pieces `more`, which it never needs."""
    vocabulary = ["<unk>", *"abcdefghijklmnopqrstuvwxyz", *more]
    raw = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, merges=[], unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")


def test_shares_by_hand():
    fit = tokenizer_fit(make_tokenizer(), ["w1 w2 one", "w1 w2 two", "w3 w4 w5", "w3"])
    assert fit.unknown == 2 / 10 and fit.alike == 2 / 4 and not fit.spells
    assert fit.tokens_per_letter == 10 / (7 + 7 + 6 + 2)
    assert [problem.partition(" ")[0] for problem in fit.problems] == ["20", "50"]
    good = tokenizer_fit(make_tokenizer(), ["w1 w2", "w2 w3"])
    assert good.problems == []


def test_bytes_of_unknown_letters_are_counted():
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "a", "b"]
    raw = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [], byte_fallback=True, unk_token="<unk>"))
    fit = tokenizer_fit(PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>"), ["abé"])
    assert fit.byte_fallback == 2 / 4 and fit.unknown == 0
    assert "50 % of the tokens are single bytes" in fit.problems[0]


def test_letter_by_letter_is_a_problem_only_where_the_vocabulary_has_longer_pieces(tmp_path):
    texts = ["some words", "other words"]
    assert tokenizer_fit(letter_tokenizer(), texts).problems == []
    (problem,) = tokenizer_fit(letter_tokenizer("shan", "hai"), texts).problems
    assert "letter by letter (1.00 tokens per letter" in problem
    bytewise = AutoTokenizer.from_pretrained(save_byte_model(tmp_path, depth=1))
    assert tokenizer_fit(bytewise, texts).spells


def test_a_model_that_cannot_read_the_sentences_is_refused_before_it_runs(tiny_llama, reading_llama, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.pick.one_model.pick_recipe", lambda *a, **k: pytest.fail("the model was run"))
    with pytest.raises(InputError, match=r"cannot judge .*llama: 100 % of the tokens are unknown .* and 100 % of"):
        layerwise.pick(tiny_llama)
    monkeypatch.undo()
    assert layerwise.pick(reading_llama, layer_only=True).layers


@pytest.mark.parametrize("name", ["all-minilm-l6-v2", "smollm2-135m", "gemma3-270m", "stories260k"])
def test_english_tokenizers_read_the_sentences(name, real_model):
    assert tokenizer_fit(AutoTokenizer.from_pretrained(real_model(name)), proxy_texts()).problems == []


def test_texts_of_another_language_are_named_in_one_line(reading_llama):
    def share(texts):
        words = [word for text in texts for word in words_in(text)]
        return sum(word in common_words("en") for word in words) / len(words)

    demo = [example.text for example in layerwise.texts("demo")]
    assert share(GERMAN) < FEWEST_COMMON / 2 and share(demo) > 1.5 * FEWEST_COMMON
    with pytest.warns(
        UserWarning, match="^--fit: only 0.0 % of the words .* English .*; pass --language de$"
    ) as caught:
        layerwise.pick(reading_llama, [f"{text} {i}" for i, text in enumerate(GERMAN * 3)], layer_only=True)
    assert len(caught) == 1
    warn_of_other_language(demo, "--fit", "en")
    warn_of_other_language(GERMAN[:1], "--fit", "en")  # too few words to tell
    with pytest.warns(UserWarning, match=r"bundled German sentences.*; pass --language en$"):
        warn_of_other_language(demo, "--fit", "de")
    with pytest.warns(UserWarning, match=r"; pass pairs of yours \(--pairs FILE\)$"):
        warn_of_other_language(["Kissa istuu ikkunalla ja katselee lintuja pihan puussa"] * 20, "--labels", "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_common_words_tell_the_bundled_languages_apart(language):
    for other in LANGUAGES:
        words = [word for text in proxy_texts(other) for word in words_in(text)]
        share = sum(word in common_words(language) for word in words) / len(words)
        assert share > 1.5 * FEWEST_COMMON if other == language else share < FEWEST_COMMON / 2, (language, other)


def test_a_refusal_offers_a_language_that_can_be_read():
    """A tokenizer of the French words refuses English sentences."""
    words = sorted({word for text in proxy_texts("fr") for word in re.findall(r"\w+|[^\w\s]+", text)})
    tokenizer = make_tokenizer(words)
    require_readable(tokenizer, "m", "fr")
    with pytest.raises(InputError, match=r"bundled English sentences cannot judge m: .* can read: --language fr$"):
        require_readable(tokenizer, "m", "en")

"""The short texts that a student is trained on beside the given ones."""

import random
import re

import pytest
from embedders import ship_model
from families import make_model
from test_shrink import certificate
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel, Decoder, Metaspace, WordPiece
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import layerwise
from layerwise.verbs.shrink.made_requests import ENGLISH_WORDS, FORMS, are_english, made_requests, vocabulary_words
from layerwise.verbs.shrink.texts import PromptedText

ENGLISH = [PromptedText(f"The {place} of a river is in the north, and word {i} is new.") for i, place in
           enumerate(["mouth", "end", "bank", "bed"] * 10)]  # fmt: skip


def tokenizer_of(entries: list[str], decoder: Decoder) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(WordLevel({entry: i for i, entry in enumerate(["[UNK]", *entries])}, "[UNK]"))
    tokenizer.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


WORD_PIECES = tokenizer_of(["zinc", "##ing", "river", "a", "é", "été", "12", ".", "den"], WordPiece())


@pytest.mark.parametrize(
    ("entries", "decoder", "words"),
    [
        (["zinc", "##ing", "river", "a", "été", "12", "x9", "."], WordPiece(), ["river", "zinc"]),
        (["▁zinc", "ing", "▁river", "▁a", "▁été", "▁12", "▁"], Metaspace(), ["river", "zinc"]),
        (["Ġzinc", "ing", "Ġriver", "Ġa", "Ġ12", "Ġ"], ByteLevel(), ["river", "zinc"]),
        (["1", "2"], WordPiece(), []),
    ],
)
def test_the_words_of_a_vocabulary_are_its_entries_that_begin_a_word(entries, decoder, words):
    assert vocabulary_words(tokenizer_of(entries, decoder)) == words


def test_each_request_is_a_form_with_words_of_the_vocabulary():
    made = made_requests(ENGLISH, WORD_PIECES, "query: ", 0)
    assert len(made) == len(ENGLISH) // 2
    assert (
        made == made_requests(ENGLISH, WORD_PIECES, "query: ", 0) != made_requests(ENGLISH, WORD_PIECES, "query: ", 1)
    )
    forms = [re.escape(form.strip()).replace(r"\{\}", "(zinc|river|den)") for form in FORMS.split("|")]
    for item in made:
        assert item.prompt == "query: " and item.kind == "query"
        assert any(re.fullmatch(form, item.text) for form in forms), item.text


def test_requests_are_made_only_for_texts_in_english_and_from_words():
    german = [PromptedText(f"Der Fluss ist {i} Meilen lang und in der Mitte sehr tief, was den Fischern gefällt.")
              for i in range(40)]  # fmt: skip
    french = [PromptedText(f"Le fleuve a {i} kilomètres de long, et dans la vallée il est très profond.")
              for i in range(40)]  # fmt: skip
    chinese = [PromptedText(f"这条河有{i}公里长") for i in range(40)]
    names = [PromptedText(f"usb-c cable {i} m") for i in range(40)]
    assert are_english(ENGLISH) and not any(map(are_english, (german, french, chinese, names)))
    assert made_requests(german, WORD_PIECES, "", 0) == ()
    assert made_requests(ENGLISH, tokenizer_of(["##ing", "12"], WordPiece()), "", 0) == ()


def test_a_training_on_english_texts_reads_requests_as_well(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.shrink.made_requests.vocabulary_words", lambda tokenizer: ["w1", "w2"])
    generator = random.Random(0)
    texts = [" ".join(generator.choice([*ENGLISH_WORDS, f"w{n}"]) for n in range(12)) for _ in range(80)]
    teacher = ship_model(tmp_path / "teacher", make_model("bert"))
    layerwise.shrink(
        teacher, texts, tmp_path / "small", method="distill", blocks=1, choose="prefix", steps=3, progress=True
    )
    training = certificate(tmp_path / "small")["shrunk"]["training"]
    assert training["made_requests"] == 64 // 2
    assert "adding 32 made requests such as " in capsys.readouterr().err
    assert "32 made requests" in (tmp_path / "small" / "README.md").read_text()

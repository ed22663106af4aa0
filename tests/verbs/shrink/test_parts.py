"""Agreement on short inputs, which are parts of the texts that are held out."""

import random

import pytest
import torch

from layerwise.verbs.shrink.index_advice import grouped_agreement
from layerwise.verbs.shrink.texts import PART_WORDS, GivenTexts, PromptedText, parts_of, split_texts

GENERATOR = random.Random(0)
LONG = [" ".join(f"w{GENERATOR.randrange(89)}" for _ in range(20)) for _ in range(200)]


def test_parts_are_a_few_words_of_texts_that_were_not_fitted_on():
    split = split_texts(GivenTexts("", LONG[:100], LONG[100:120], LONG[120:]), ["plain: "], 0, ("query: ", "passage: "))
    parts = split.parts
    again, other = (split_texts(LONG, [""], seed).parts for seed in (0, 1))
    assert again == split_texts(LONG, [""], 0).parts != other
    assert len({part.text for part in parts}) == len(parts) == len(split.check), "one of each"
    assert all(any(part.text in text.text for text in split.check) for part in parts)
    assert {len(part.text.split()) for part in parts} <= set(range(PART_WORDS[0], PART_WORDS[1] + 1))
    assert {part.prompt for part in parts} == {"plain: ", "query: "}, "a part of a document is read as a query"


def test_a_part_that_was_fitted_on_is_left_out():
    split = split_texts(LONG, [""], 0)
    part = split.parts[0]
    fitted = split_texts([*LONG, *[part.text] * 3], [""], 0)
    assert any(item.text == part.text for item in fitted.fit) and fitted.check == split.check
    assert {*fitted.parts} == {*split.parts} - {part}


def test_a_text_that_is_short_itself_has_no_part():
    assert list(parts_of([PromptedText("two words")] * 9, "", random.Random(0))) == []


def test_a_student_that_forgets_short_inputs_is_warned_about():
    split = split_texts(LONG, [""], 0)

    def teacher(items):
        return torch.tensor([[len(item.text), 1.0, len({*item.text})] for item in items])

    def student(items):
        short = torch.tensor([len(item.text.split()) <= PART_WORDS[1] for item in items]).unsqueeze(1)
        return torch.where(short, teacher(items) * torch.tensor([0.0, 1.0, -1.0]), teacher(items))

    found = grouped_agreement(teacher, student, split)
    assert found.groups[0].mean_cosine == pytest.approx(1) and found.groups[-1].name.startswith("parts of texts")
    (warning,) = (text for text in found.warnings if "parts of texts (2 to 9 words) agree much less" in text)
    assert warning.endswith("if your queries are as short, add some with --queries FILE")

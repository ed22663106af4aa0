"""probe on labels of words: which token a word starts with, a label planted in one layer, baselines and refusals."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from families import adding_tokenizer, make_tokenizer, save_byte_model
from torch import nn
from transformers import AutoModel, AutoTokenizer, PretrainedConfig

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example, Source, TaggedWords
from layerwise.inputs.words import CUT, NO_TOKEN, first_tokens, word_tokens
from layerwise.metrics.intervals import group_bootstrap
from layerwise.models.opening import open_network
from layerwise.verbs.probe import words as probe_words
from layerwise.verbs.probe.command import closing_lines
from layerwise.verbs.probe.features import FeatureKind, read_layers
from layerwise.verbs.probe.heads import Classifier

WIDTH = 8


class Write(nn.Module):
    """Writes a function of the first two values into the third."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, hidden):
        third = self.function(hidden[..., :1], hidden[..., 1:2])
        return torch.cat([hidden[..., :2], third, hidden[..., 3:]], -1)


class Planted(nn.Module):
    """Two signs of a token's id are in every layer; their product, which no linear probe can make, only in layer 1."""

    def __init__(self):
        super().__init__()
        self.config = PretrainedConfig(num_hidden_layers=3, hidden_size=WIDTH)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.blocks = nn.ModuleList([Write(lambda a, b: 4 * a * b), Write(lambda a, b: 0 * a), nn.Identity()])

    def forward(self, input_ids, attention_mask=None):
        signs = torch.stack([2 * (input_ids % 2) - 1, 2 * (input_ids // 2 % 2) - 1], dim=-1)
        hidden = nn.functional.pad(signs.float(), (0, WIDTH - 2)) * self.scale
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


def example(*words):
    return Example(" ".join(words), TaggedWords(words))


def product(word):
    """The label of `w7-w3` is that of its first token, whose id is 11."""
    number = int(word.partition("-")[0][1:]) + 4
    return "same" if (number % 2) == (number // 2 % 2) else "other"


def sentences(n, seed=0, label=product):
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        words = [f"w{i}-w{j}" if j % 3 == 0 else f"w{i}" for i, j in random.integers(0, 60, (random.integers(2, 9), 2))]
        rows.append((words, [label(word) for word in words]))
    return rows


def source_of(rows, name="tag"):
    return Source(
        "sentences", lambda: ((None, TaggedWords(tuple(words), {name: tuple(tags)})) for words, tags in rows),
        unit="sentence",
    )  # fmt: skip


def probe(train, test, **options):
    return layerwise.probe((Planted(), make_tokenizer()), source_of(train), source_of(test), label="tag", **options)


def by_layer(table):
    return {row.layer: row.value for row in table.where(metric="tag_linear_accuracy", norm="raw")}


@pytest.fixture(scope="module")
def planted():
    return probe(sentences(120), sentences(40, seed=1))


# --- which token a word starts with ---


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("max_length", [64, 8, 5, 3])
def test_first_tokens_are_those_of_word_ids(side, max_length):
    tokenizer = adding_tokenizer()
    tokenizer.truncation_side = side
    examples = [example("w1-w2", "x", "w3", "w4-w5-w6"), example("w7"), example("x"), example("w8", "xw9", "w1-w3")]
    for found, one in zip(word_tokens(tokenizer, examples, max_length), examples, strict=True):
        words = list(one.payload.words)
        whole = tokenizer(words, is_split_into_words=True).word_ids()
        cut = tokenizer(words, is_split_into_words=True, truncation=True, max_length=max_length).word_ids()
        for number, place in enumerate(found):
            if number not in whole:
                assert place == NO_TOKEN and words[number] == "x"
            elif cut.count(number) == 0 or (side == "left" and cut.count(number) < whole.count(number)):
                assert place == CUT
            else:
                assert place == cut.index(number)


def test_a_token_of_two_words_is_that_of_the_first():
    assert first_tokens(["ab", "c", "d"], [(0, 0), (0, 1), (1, 4), (4, 5), (5, 6), (0, 0)]) == [1, NO_TOKEN, 4]
    assert first_tokens(["", "c", ""], [(0, 2)]) == [NO_TOKEN, 0, NO_TOKEN]


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_vectors_are_those_of_a_plain_script(family, tmp_path):
    """With a token per byte and spaces as tokens of their own, each sentence alone in transformers."""
    folder = save_byte_model(tmp_path / "model", 2, family=family)
    examples = [example("John", "paid", "€", "5"), example("I", "naïve"), example("a", "b", "c", "d", "e")]
    readouts = tuple(Readout(layer, "raw", "all", "mean") for layer in range(3))
    network = open_network(folder)
    kind = FeatureKind("", 64, readouts, True, "float32", words=True)
    features = read_layers(network, kind, examples, 4096, lambda items, tokens=0: None)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    expected = {layer: [] for layer in range(2)}
    for one in examples:
        text = one.payload.text
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states = model(input_ids=inputs["input_ids"], output_hidden_states=True).hidden_states
        start = 0
        for word in one.payload.words:
            place = inputs.char_to_token(start)
            for layer in expected:  # transformers gives the last layer of a decoder after its norm
                expected[layer].append(states[layer][0, place])
            start += len(word) + 1
    for layer, rows in expected.items():
        torch.testing.assert_close(features[readouts[layer]].positions, torch.stack(rows), atol=1e-5, rtol=1e-5)
        assert features[readouts[layer]].lengths.tolist() == [4, 2, 5]


@pytest.mark.parametrize("name", ["all-minilm-l6-v2", "smollm2-135m", "gemma3-270m"])
def test_real_tokenizers_give_each_word_a_token_with_its_first_letter(name, real_model):
    tokenizer = AutoTokenizer.from_pretrained(real_model(name))
    words = "In 1987 , John didn't pay 1,000 $ to FC2x -based U.S. ( Zeist ) 's .".split()
    ((*places,),) = word_tokens(tokenizer, [example(*words)], 128)
    ids = tokenizer(" ".join(words))["input_ids"]
    for word, place in zip(words, places, strict=True):
        token = tokenizer.decode([ids[place]]).strip()
        assert token and word.lower().startswith(token.lower()), (word, token)
    if name == "all-minilm-l6-v2":
        word_ids = tokenizer(words, is_split_into_words=True).word_ids()
        assert places == [word_ids.index(number) for number in range(len(words))]


# --- what the probes find ---


def test_a_label_of_words_that_is_in_one_layer_is_found_there(planted):
    values = by_layer(planted)
    assert values[1] == 100.0 and max(values[layer] for layer in (0, 2, 3)) < 76, values
    facts, words = planted.run["labels"]["tag"], planted.run["words"]
    assert words["train"] == {"sentences": 120, "words": facts["train"], "truncated": 0, "without_token": 0}
    assert facts["test"] == words["test"]["words"] == planted.where(layer=1).scores[0].n
    assert planted.run["forwarded"] == 160
    for row in planted:
        assert row.pooling == "-" and row.ci_low <= row.value <= row.ci_high
    last = next(one["minus_last"] for one in planted.run["probes"] if one["layer"] == 1)
    assert last["points"] == pytest.approx(100 - values[3]) and last["ci_low"] < last["points"] < last["ci_high"]


def test_baselines_are_the_most_frequent_class_and_that_of_each_word(planted):
    train = pd.DataFrame([pair for rows in sentences(120) for pair in zip(*rows, strict=True)], columns=["word", "tag"])
    test = pd.DataFrame(
        [pair for rows in sentences(40, 1) for pair in zip(*rows, strict=True)], columns=["word", "tag"]
    )
    most = train.tag.mode()[0]
    by_word = train.groupby("word").tag.agg(lambda tags: tags.mode()[0])
    facts = planted.run["labels"]["tag"]
    assert facts["most_frequent"] == pytest.approx(100 * (test.tag == most).mean())
    assert facts["most_frequent_of_word"] == pytest.approx(
        100 * (test.word.map(by_word).fillna(most) == test.tag).mean()
    )
    low, high = facts["most_frequent_of_word_ci"]
    assert low < facts["most_frequent_of_word"] < high
    assert any("of each word scores" in line for line in closing_lines(planted))


def test_shuffled_labels_score_as_the_most_frequent_class():
    random = np.random.default_rng(5)
    shuffled = lambda word: "often" if random.random() < 0.8 else "seldom"  # noqa: E731
    table = probe(sentences(150, label=shuffled), sentences(80, 1, label=shuffled))
    assert [*by_layer(table).values()] == pytest.approx([table.run["labels"]["tag"]["most_frequent"]] * 4)


def test_batches_and_threads_of_sentences_do_not_matter(planted):
    again = probe(sentences(120)[::-1], sentences(40, 1), batch_tokens=8)
    assert by_layer(again) == by_layer(planted)
    assert [(row.ci_low, row.ci_high) for row in again] == [(row.ci_low, row.ci_high) for row in planted]


def test_the_interval_is_over_groups():
    values = np.random.default_rng(0).random(400) < 0.5
    alone = group_bootstrap(values, np.arange(400))
    width = alone[1] - alone[0]
    assert width == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.1)
    low, high = group_bootstrap(np.repeat(values, 9), np.repeat(np.arange(400) * 2, 9))
    assert (low, high) == alone, "nine equal words in each sentence say no more than one"


def test_stored_fits_are_used_again(tmp_path, monkeypatch):
    from layerwise.verbs.probe import run

    call = partial(probe, sentences(30), sentences(12, 1), layers="0,1", out=tmp_path)
    first = call()

    def refuse(*given):
        raise AssertionError("a fit that is stored was trained again")

    monkeypatch.setattr(run, "linear_probe", refuse)
    assert [repr(row) for row in call()] == [repr(row) for row in first]


def test_a_run_is_resumed_and_is_no_classifier_to_export(tmp_path):
    call = partial(probe, sentences(30), sentences(12, 1), layers="0,1", out=tmp_path)
    first, again = call(), call()
    assert (first.run["forwarded"], again.run["forwarded"]) == (42, 0)
    assert [repr(row) for row in first] == [repr(row) for row in again]
    with pytest.raises(InputError, match="labels of words; export writes only classifiers of whole texts"):
        Classifier.load(tmp_path)


# --- words that are left out, files and refusals ---


def test_truncated_words_and_words_without_a_token_are_counted():
    tokenizer = adding_tokenizer()
    rows = [([*words, "x"], [*tags, "other"]) for words, tags in sentences(60)]
    with pytest.warns(UserWarning, match=r"left out \d+ words behind the first 6 tokens"):
        table = layerwise.probe(
            (Planted(), tokenizer), source_of(rows[:40]), source_of(rows[40:]), label="tag", layers="1", max_length=6
        )
    cut = 0
    for words, _ in rows[:40]:
        word_ids = tokenizer(words, is_split_into_words=True, truncation=True, max_length=6).word_ids()
        cut += len({*range(len(words) - 1)} - {*word_ids})
    record = table.run["words"]["train"]
    assert (record["truncated"], record["without_token"]) == (cut, 40)
    assert record["words"] == sum(len(words) for words, _ in rows[:40]) - cut - 40
    assert any(line.startswith("left out: ") and "60 words without a token" in line for line in closing_lines(table))


def test_more_words_than_fit_into_memory_are_a_sample(monkeypatch):
    monkeypatch.setattr(probe_words, "MOST_VALUES", 100 * WIDTH)
    with pytest.warns(UserWarning, match=r"left out \d+ sentences of 160, at random with seed 0: at most 100 words"):
        table = probe(sentences(120), sentences(40, 1), layers="1")
    record = table.run["words"]
    assert 90 <= record["train"]["words"] <= 100 and 90 <= record["test"]["words"] <= 100
    assert record["sentences_left_out"] == 160 - table.run["forwarded"]


def write_conll(path, rows, separator=" ", head=""):
    lines = ["-DOCSTART- -X- O", ""] if separator == " " else []
    for words, tags in rows:
        lines += [separator.join((word, "x y" if separator == "\t" else "xy", tag))
                  for word, tag in zip(words, tags, strict=True)] + [""]  # fmt: skip
    path.write_text(head + "\n".join(lines) + "\n")
    return path


def test_all_formats_hold_the_same_sentences(tmp_path):
    rows = sentences(5)
    spaces = write_conll(tmp_path / "a.conll", rows)
    tabs = write_conll(tmp_path / "b.conll", rows, "\t", "# global.columns = FORM X TAG\n")
    frame = pd.DataFrame({"words": [words for words, _ in rows], "tag": [tags for _, tags in rows]})
    frame.to_parquet(tmp_path / "c.parquet")
    frame.to_json(tmp_path / "d.jsonl", orient="records", lines=True)
    found = [
        [(e.id, e.payload.words, e.payload.labels[label]) for e in layerwise.labelled(path, label, column=column)]
        for path, label, column in (
            (spaces, "3", "text"), (tabs, "TAG", "FORM"), (tmp_path / "c.parquet", "tag", "words"),
            (tmp_path / "d.jsonl", "tag", "words"),
        )
    ]  # fmt: skip
    assert found[0] == found[1] == found[2] == found[3]
    assert [(words, tags) for _, words, tags in found[0]] == [(tuple(words), tuple(tags)) for words, tags in rows]


def test_the_command_reads_a_conll_file(tiny_llama, tmp_path, capsys):
    train, test = write_conll(tmp_path / "a.conll", sentences(30)), write_conll(tmp_path / "b.conll", sentences(12, 1))
    args = ["--data", str(train), "--test", str(test), "--label", "3", "--layers", "0,1", "--json"]
    assert main(["probe", tiny_llama, *args]) == 0
    printed = capsys.readouterr()
    assert {row["metric"] for row in json.loads(printed.out)["scores"]} == {"3_linear_accuracy"}
    assert "words to train and" in printed.err and "most frequent class of each word" in printed.err


@pytest.mark.parametrize(
    ("line", "label", "said"),
    [
        ("a b\na\n", "2", r"line 2 has 1 column, but the lines before have 2"),
        ("a b\n", "3", r"has no column '3'; it has 1, 2"),
        ("a b\n", "ner", r"has no column 'ner'; it has 1, 2\. Choose one with --label NAME"),
    ],
)
def test_a_conll_file_that_cannot_be_read_is_refused(line, label, said, tmp_path):
    path = tmp_path / "a.conll"
    path.write_text(line)
    with pytest.raises(InputError, match=said):
        list(layerwise.labelled(path, label))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"words": ["a", "b"], "tag": ["x"]}, "row 2: words has 2 items, but tag has 1"),
        ({"words": ["a"], "tag": "x"}, "tag must be a list with one item per word"),
        ({"words": ["a"], "tag": [None]}, "tag must hold texts or numbers, but holds None"),
        ({"words": [1], "tag": ["x"]}, "words must be text"),
    ],
)
def test_a_table_whose_lists_do_not_fit_is_refused(record, said, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"words": ["a"], "tag": ["x"]}, record])))
    with pytest.raises(InputError, match=said):
        list(layerwise.labelled(path, "tag", column="words"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"probes": "linear,knn"}, "labels of words are read by the linear probe only"),
        ({"pooling": "last"}, "a word is read from its first token; leave out tokens and pooling"),
        ({"tokens": "no_first"}, "a word is read from its first token"),
        ({"label": "ner"}, r"has no labels 'ner' of its words; it has tag"),
    ],
)
def test_options_that_are_about_texts_are_refused(options, said):
    model = (Planted(), make_tokenizer())
    with pytest.raises(InputError, match=said):
        layerwise.probe(model, source_of(sentences(30)), source_of(sentences(12, 1)), **{"label": "tag"} | options)


def test_other_data_that_cannot_be_used_are_refused(tmp_path):
    with pytest.raises(InputError, match="5 test sentences are too few for an interval"):
        probe(sentences(30), sentences(5, 1))
    texts = layerwise.texts(["a b", "c d"]).with_labels({"tag": ["x", "y"]})
    with pytest.raises(InputError, match="only one of sentences and a list of 2 texts has a label per word"):
        layerwise.probe((Planted(), make_tokenizer()), source_of(sentences(30)), texts, label="tag")
    with pytest.raises(InputError, match="fast tokenizer.*SimpleNamespace is none"):
        word_tokens(SimpleNamespace(is_fast=False), [example("a")], 8)
    path = write_conll(tmp_path / "a.conll", sentences(3))
    with pytest.raises(InputError, match="has no ids of sentences"):
        layerwise.labelled(path, "3", id_column="id")
    (tmp_path / "a.txt").write_text(path.read_text())
    with pytest.raises(InputError, match=r"or a \.conll file with a word and its labels per line"):
        layerwise.labelled(tmp_path / "a.txt", "3")

"""Texts from everywhere, with ids that do not depend on their place."""

import io
import json
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import layerwise
from layerwise.core.errors import InputError
from layerwise.core.hub import Answer
from layerwise.inputs.source import Example, Occurrences, shards
from layerwise.inputs.text import demo_texts, wikitext_paragraph

TEXTS = ["one text", "a second, with a comma", 'a "third"', "one text"]


def read(*args, **options):
    return [example.text for example in layerwise.texts(*args, **options)]


def test_every_format_gives_the_same_texts_and_ids(tmp_path):
    frame = pd.DataFrame({"body": TEXTS})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n\n")
    expected = list(layerwise.texts(TEXTS))
    assert [e.text for e in expected] == TEXTS
    for name in ("t.csv", "t.parquet", "t.jsonl", "t.txt"):
        assert list(layerwise.texts(tmp_path / name, column="body")) == expected, name


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n"))
    source = layerwise.texts("-")
    assert [e.text for e in source] == [e.text for e in source] == ["one", "two"]


def test_ids_do_not_depend_on_order_and_repeats_are_told_apart():
    forward, backward = list(layerwise.texts(TEXTS)), list(layerwise.texts(TEXTS[::-1]))
    assert sorted(e.id for e in forward) == sorted(e.id for e in backward)
    assert len({e.id for e in forward}) == len(TEXTS)


def test_a_named_column_gives_the_ids(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": t, "n": i}) + "\n" for i, t in enumerate(TEXTS)))
    assert [e.id for e in layerwise.texts(path, id_column="n")] == ["0", "1", "2", "3"]
    path.write_text('{"text": "a", "n": 1}\n{"text": "b", "n": 1}\n')
    with pytest.raises(InputError, match="occurs twice"):
        list(layerwise.texts(path, id_column="n"))


def test_a_sample_is_fair_and_does_not_depend_on_order():
    texts = [f"text {i}" for i in range(1000)]
    chosen = read(texts, sample=100)
    assert set(chosen) == set(read(texts[::-1], sample=100))
    assert len(set(chosen) & set(texts[:500])) == pytest.approx(50, abs=20)
    assert read(texts, limit=3) == texts[:3]


def test_any_collection_of_texts_will_do():
    assert read(pd.Series(TEXTS)) == read(tuple(TEXTS)) == read(text for text in TEXTS) == TEXTS
    with pytest.raises(InputError, match="one column of the table"):
        read(pd.DataFrame({"text": TEXTS}))


def test_files_of_spreadsheets_and_long_cells_are_read(tmp_path):
    (tmp_path / "bom.csv").write_bytes("\ufefftext\nhello\n".encode())
    (tmp_path / "long.csv").write_text("text\n" + "x" * 200_000 + "\n")
    assert read(tmp_path / "bom.csv") == ["hello"]
    assert len(read(tmp_path / "long.csv")[0]) == 200_000
    (tmp_path / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    with pytest.raises(InputError, match="latin.txt is not UTF-8"):
        read(tmp_path / "latin.txt")
    with pytest.raises(InputError, match="limit must be at least 1, not -3"):
        read(TEXTS, limit=-3)


def test_counting_stops_in_time_and_is_not_begun_online(monkeypatch):
    texts = [f"text {i}" for i in range(10)]
    assert layerwise.texts(texts).count(20) == (10, True)
    assert layerwise.texts(texts).count(4) == (4, False)
    monkeypatch.setattr("layerwise.inputs.text.ask_hub", lambda *_, **__: Answer())
    online = layerwise.texts("nobody/nothing", only="wikitext", limit=5)
    assert online.remote and online.count(7) == (7, False)


def test_filters_come_before_cuts():
    lines = [" = Title = ", "A paragraph .", "", " = = Part = = ", "x = y is no heading", "Another ."]
    assert read([line or " " for line in lines], only="wikitext", limit=2) == ["A paragraph .", "x = y is no heading"]
    assert [wikitext_paragraph(line) for line in lines] == [False, True, False, False, True, True]
    count = lambda text: {"input_ids": text.split()}  # noqa: E731
    assert read(["a b c", "a", "a b"], min_tokens=2, tokenizer=count) == ["a b c", "a b"]


def test_mistakes_are_answered_with_what_to_type(tmp_path):
    (tmp_path / "t.csv").write_text("body,n\na,1\n")
    pd.DataFrame({"body": ["a"], "n": [1]}).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\nnot json\n')
    (tmp_path / "notes.md").write_text("x")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(InputError, match="no column 'text'; it has body, n"):
            read(tmp_path / name)
    with pytest.raises(InputError, match="line 2: not JSON"):
        read(tmp_path / "bad.jsonl")
    with pytest.raises(InputError, match="no file 'missing.txt'; pass a list"):
        read("missing.txt")
    with pytest.raises(InputError, match=r"no file .*tt.csv'; did you mean .*/t.csv\?"):
        read(tmp_path / "tt.csv")
    with pytest.raises(InputError, match=r"no column 'bdy'; .* Did you mean --column body\?"):
        read(tmp_path / "t.csv", column="bdy")
    with pytest.raises(InputError, match="pass a .txt, .jsonl, .csv, .parquet file"):
        read(tmp_path / "notes.md")
    with pytest.raises(InputError, match="item 1 of the list is a int"):
        read(["a", 3])
    with pytest.raises(InputError, match="contains int, not text. Choose another with --column NAME"):
        read(tmp_path / "t.parquet", column="n")


def test_a_folder_is_answered_with_the_file_to_pass(tmp_path):
    with pytest.raises(InputError, match="is a folder without texts: it contains no .txt"):
        read(tmp_path)
    for name in ("b.txt", "a.csv", "notes.md"):
        (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match="is a folder. Pass one of its files .2., such as .*/a.csv"):
        read(tmp_path)


@pytest.mark.parametrize(("content", "problem"), [
    (b"", "is empty"),
    ("a text\n".encode("utf-16"), "is UTF-16. Convert it: iconv"),
    (b"GGUF\0\0\0", "is a binary file"),
])  # fmt: skip
def test_a_file_without_readable_text_is_named_when_it_is_opened(content, problem, tmp_path):
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(InputError, match=f"t.txt {problem}"):
        layerwise.texts(tmp_path / "t.txt")


@pytest.mark.parametrize(("answer", "problem"), [
    (Answer("https://hub/datasets/dmo does not exist"), "did you mean demo.*hub data set: https://hub/datasets/dmo"),
    (Answer("the hub cannot be reached", reached=False), "hub data set: the hub cannot be reached"),
])  # fmt: skip
def test_a_hub_data_set_that_does_not_exist_is_refused_when_it_is_opened(answer, problem, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setattr("layerwise.inputs.text.ask_hub", lambda *_, **__: answer)
    with pytest.raises(InputError, match=problem):
        layerwise.texts("dmo")


def test_a_hub_data_set_that_cannot_be_had_is_a_clear_error(monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="there is no file .nobody/nothing.*hub data set"):
        read("nobody/nothing")


def test_a_hub_data_set_is_streamed(tmp_path):
    """A folder of Parquet files is what the hub serves; the loader is the same."""
    datasets = pytest.importorskip("datasets")
    from layerwise.inputs.text import dataset_records, texts_in

    (tmp_path / "data").mkdir()
    pd.DataFrame({"text": TEXTS}).to_parquet(tmp_path / "data" / "test-00000.parquet")
    rows = texts_in(dataset_records(str(tmp_path), None, "test"), "text", None, "set")
    assert datasets and [text for _, text in rows] == TEXTS


def test_the_demo_is_two_hundred_different_texts():
    texts = demo_texts()
    assert len(texts) == len(set(texts)) == 200
    assert all(10 < len(text.split()) < 120 for text in texts)


def test_shards_are_runs_of_the_stream():
    examples = [Example(str(i), "x") for i in range(7)]
    assert [len(shard) for shard in shards(examples, 3)] == [3, 3, 1]
    assert [e for shard in shards(examples, 3) for e in shard] == examples


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=3000))
def test_occurrences_are_those_that_a_counter_counts(numbers):
    occurrences, counter = Occurrences(), Counter()
    for number in numbers:
        assert occurrences.count_and_add(number) == counter[number or 1]
        counter[number or 1] += 1


def test_a_million_texts_take_some_twenty_bytes_each():
    occurrences = Occurrences()
    for number in range(1, 200_000):
        occurrences.count_and_add(number * 0x9E3779B97F4A7C15 % 2**64)
    assert len(occurrences.table) * 8 < 30 * 200_000 and not occurrences.repeated

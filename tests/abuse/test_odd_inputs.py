"""Odd inputs: texts, tables, arrays and files keep their values, or are refused by name; nothing is lost in silence."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from families import DEPTH

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, NotFiniteError
from layerwise.core.recipe import Recipe
from layerwise.inputs.tables import read_table
from layerwise.metrics.ops.precision import not_finite_advice
from layerwise.verbs.eval.data_root import read_root, write_task
from layerwise.verbs.pick.labels import label_probe

TEXTS = ["w1 w2 w3", "w4 w5 w6 w7", "w8 w9"]
NULLS = ["NA", "null", "nan", "None", "N/A", "", "true", "1e5", "01"]


def written(path, records):
    """The records as a .csv, .jsonl or .parquet file."""
    frame = pd.DataFrame(records)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_table_keeps_every_text_and_label_as_it_was_written(suffix, tmp_path):
    records = [{"text": text, "label": label} for text in NULLS for label in ("01", "1", "1.0", "NA")]
    table = read_table(written(tmp_path / f"t{suffix}", records))
    assert [dict(row) for row in table.to_dict(orient="records")] == records


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_data_keeps_classes_apart_that_differ_as_texts(suffix, tmp_path):
    classes = ["01", "1", "1.0"]
    records = [{"text": f"w{i}", "label": classes[i % 3]} for i in range(12)]
    path = str(written(tmp_path / f"t{suffix}", records))
    root = tmp_path / "root"
    assert main(["lab", "data", str(root), "Own", "--type", "Classification", "--test", path, "--train", path]) == 0
    kept = pq.read_table(root / "Own" / "default" / "test.parquet").to_pydict()
    assert kept["label"] == [record["label"] for record in records]


def test_data_keeps_texts_that_look_like_nothing(tmp_path):
    path = str(written(tmp_path / "t.csv", [{"text": text, "label": i % 3} for i, text in enumerate(NULLS)]))
    assert (
        main(["lab", "data", str(tmp_path / "r"), "Own", "--type", "Classification", "--test", path, "--train", path])
        == 0
    )
    kept = pq.read_table(tmp_path / "r" / "Own" / "default" / "test.parquet").to_pydict()
    assert kept["text"] == NULLS and kept["label"] == [i % 3 for i in range(len(NULLS))]
    assert read_root(tmp_path / "r")["Own"].texts("test") == NULLS


@pytest.mark.parametrize("classes", [("pos", "neg"), ("0", "1")])
def test_two_classes_named_by_texts_can_be_scored(classes, tiny_llama, tmp_path):
    """mteb's average precision of two classes reads numbers."""
    records = [{"text": f"w{i} w{i + 1}", "label": classes[i % 2]} for i in range(20)]
    table = read_table(written(tmp_path / "t.csv", records))
    write_task(tmp_path / "root", "Own", "Classification", table, table)
    scored = layerwise.eval(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "e", layers="1")
    assert len(scored) == 1


@pytest.mark.parametrize(("kind", "column", "value"), [
    ("STS", "score", "high"), ("STS", "score", ""), ("STS", "score", "inf"), ("STS", "score", None),
    ("PairClassification", "labels", "0.5"), ("PairClassification", "labels", "yes"),
])  # fmt: skip
def test_a_number_that_is_none_is_told_by_its_row(kind, column, value, tmp_path):
    good = {"sentence1": "a", "sentence2": "b", column: "1"}
    with pytest.raises(InputError, match=f"row 2: {column}"):
        write_task(tmp_path, "Own", kind, pd.DataFrame([good, good | {column: value}], dtype=object))
    assert not (tmp_path / "Own").exists()


def test_texts_and_labels_that_are_missing_are_told_by_their_row(tmp_path):
    wrong = [("text", None), ("text", 5), ("text", "lone \ud83d"), ("label", None), ("label", float("nan"))]
    for column, value in wrong:
        rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}, {"text": "c", "label": "x", column: value}]
        table = pd.DataFrame(rows, dtype=object)
        with pytest.raises(InputError, match=f"row 3: {column}"):
            write_task(tmp_path, "Own", "Classification", table, table)
    mixed = pd.DataFrame({"text": ["a", "b"], "label": [1, "1"]}, dtype=object)
    with pytest.raises(InputError, match="row 2: label"):
        write_task(tmp_path, "Own", "Classification", mixed, mixed)
    lists = pd.DataFrame({"query": ["q", "r"], "positive": [["a"], ["b"]], "negative": [["c"], ["d", None]]})
    with pytest.raises(InputError, match="row 2: negative"):
        write_task(tmp_path, "Own", "Retrieval", lists)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_labels_stay_the_classes_that_they_are(suffix, tmp_path):
    records = [{"text": NULLS[i % 9] + str(i) if i else "NA", "label": ["01", "1", "1.0"][i % 3]} for i in range(24)]
    probe = label_probe(read_table(written(tmp_path / f"t{suffix}", records)))
    assert probe.texts[0] == "NA"
    assert len(probe.score(np.random.default_rng(0).normal(size=(24, 5)))) == 24
    one = [record | {"label": "1"} for record in records]
    with pytest.raises(InputError, match="two classes"):
        label_probe(read_table(written(tmp_path / f"one{suffix}", one)))


def test_labels_that_cannot_be_used_are_told_by_their_row(tiny_llama):
    table = pd.DataFrame({"text": ["a"] * 20, "label": ["x", "y"] * 9 + ["x", None]})
    with pytest.raises(InputError, match="row 20: label"):
        layerwise.pick(tiny_llama, TEXTS, labels=table)
    pairs = pd.DataFrame({"text1": ["a"] * 20, "text2": ["b"] * 20, "score": ["1"] * 19 + ["much"]})
    with pytest.raises(InputError, match="row 20: score must be a number, not 'much'"):
        layerwise.pick(tiny_llama, TEXTS, labels=pairs)
    with pytest.raises(InputError, match="labels .*list"):
        layerwise.pick(tiny_llama, TEXTS, labels=[("a", "x")])


UNCLOSED = [
    ('text,label\n"never closed,1\nfoo,2\nbar,3\n', "line 2"),
    ('text,label\nfine,1\n"open,1\nfoo,2\n"closed",3\nbar,4\n', "line 3"),
    ("text,label\na,1\nb\nc,3\n", "line 3"),
    ("text,label\na,1\nb,2,surplus\n", "line 3"),
]


@pytest.mark.parametrize(("content", "line"), UNCLOSED)
def test_a_csv_that_would_swallow_or_lose_cells_is_refused_by_line(content, line, tmp_path):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=f"t.csv, {line}"):
        list(layerwise.texts(tmp_path / "t.csv"))
    with pytest.raises(InputError, match=f"t.csv, {line}"):
        read_table(tmp_path / "t.csv")


def test_a_csv_may_have_quotes_lines_and_a_mark_of_its_encoding(tmp_path):
    (tmp_path / "t.csv").write_bytes('\ufefftext,label\r\n"two\nlines, ""quoted""",1\r\n5" screen,2\r\n\r\n'.encode())
    assert [e.text for e in layerwise.texts(tmp_path / "t.csv")] == ['two\nlines, "quoted"', '5" screen']
    assert list(read_table(tmp_path / "t.csv").columns) == ["text", "label"]
    (tmp_path / "twice.csv").write_text("text,text\na,b\n")
    with pytest.raises(InputError, match="two columns named 'text'"):
        read_table(tmp_path / "twice.csv")


@pytest.mark.parametrize("name", ["e.csv", "e.jsonl", "e.parquet", "e.txt"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00broken"])
def test_an_empty_or_broken_file_is_told_by_its_name(name, content, tiny_llama, tmp_path, capsys):
    (tmp_path / name).write_bytes(content)
    path = str(tmp_path / name)
    for call in (["scan", tiny_llama, "--data", path], ["embed", tiny_llama, "--data", path, "--out", path + ".out"]):
        assert main(call) == 2
        printed = capsys.readouterr().err
        assert name in printed and "unexpected" not in printed
    if name != "e.txt":
        with pytest.raises(InputError, match=name):
            read_table(path)
        with pytest.raises(InputError, match=name):
            layerwise.pick(tiny_llama, TEXTS, labels=path)


def test_a_file_without_a_text_is_told_before_weights(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.models.opening.load_network", lambda *_: pytest.fail("weights were loaded"))
    (tmp_path / "blank.txt").write_text("\n  \n")
    pq.write_table(pa.table({"text": pa.array([None, " "], pa.string())}), tmp_path / "blank.parquet")
    for name in ("blank.txt", "blank.parquet"):
        with pytest.raises(InputError, match=f"{name} contains no texts"):
            layerwise.scan(tiny_llama, tmp_path / name)
        with pytest.raises(InputError, match=f"{name} contains no texts"):
            layerwise.embed(tiny_llama, tmp_path / name)


@pytest.mark.parametrize("given", [
    np.array(TEXTS), np.array(TEXTS, dtype=object), pd.Series(TEXTS), pd.Index(TEXTS), tuple(TEXTS), pa.array(TEXTS),
    (text for text in TEXTS),
], ids=["numpy", "objects", "series", "index", "tuple", "arrow", "generator"])  # fmt: skip
def test_any_column_of_texts_is_data(given, tiny_llama):
    plain = layerwise.embed(tiny_llama, TEXTS, layers=np.array([1]))
    again = layerwise.embed(tiny_llama, given, layers=[np.int64(1)])
    assert list(again.text) == TEXTS and all(type(text) is str for text in again.text)
    assert np.array_equal(np.stack(plain.layer_1), np.stack(again.layer_1))


@pytest.mark.parametrize(("given", "message"), [
    (None, "NoneType"), (5, "int"), ({"text": TEXTS}, "dict"), (b"bytes", "bytes"),
    (pd.DataFrame({"text": TEXTS}), "column"),
    ([None], "item 0"), (np.array([["a", "b"]]), "item 0"),
], ids=["none", "int", "dict", "bytes", "frame", "null", "matrix"])  # fmt: skip
def test_what_is_no_data_is_refused_by_its_type(given, message, tiny_llama):
    with pytest.raises(InputError, match=message):
        layerwise.scan(tiny_llama, given)
    with pytest.raises(InputError, match=message):
        layerwise.embed(tiny_llama, given)


def test_a_map_is_fitted_on_a_series_as_on_a_list(tiny_llama, word_texts, tmp_path):
    recipe = Recipe(1, transform="center", max_length=16)
    paths = [tmp_path / "list", tmp_path / "series"]
    for path, fit in zip(paths, (word_texts, pd.Series(word_texts)), strict=True):
        layerwise.export(tiny_llama, recipe, path, fit=fit)
    proofs = [json.loads((path / "layerwise.json").read_text()) for path in paths]
    assert proofs[0]["recipe"] == proofs[1]["recipe"]


def test_settings_may_be_numpy_numbers(tiny_llama, tmp_path):
    table = layerwise.scan(
        tiny_llama,
        TEXTS,
        out=tmp_path / "r",
        metrics="curvature",
        max_length=np.int64(16),
        seed=np.int64(1),
        batch_tokens=np.int32(64),
        shard_size=np.int64(2),
        layers=np.array([0, DEPTH]),
    )
    assert {row.layer for row in table} == {0, DEPTH}


def test_rows_are_chosen_by_numpy_values_as_by_those_of_python(tiny_llama, tmp_path):
    table = layerwise.scan(tiny_llama, TEXTS, out=tmp_path / "r", metrics="curvature")
    for given, same in (
        ({"layer": np.int64(1)}, {"layer": 1}),
        ({"layer": np.array([1, 2])}, {"layer": [1, 2]}),
        ({"layer": [np.int32(1)]}, {"layer": 1}),
        ({"layer": pd.Series([0, 1])}, {"layer": [0, 1]}),
        ({"depth": np.float32(1)}, {"depth": 1.0}),
        ({"metric": np.str_("curvature"), "normalize": np.bool_(False)}, {"metric": "curvature"}),
    ):
        wanted = [row.identity for row in table.where(**same)]
        assert wanted and [row.identity for row in table.where(**given)] == wanted
        assert [row.identity for row in layerwise.LayerTable.load(tmp_path / "r", given)] == wanted
    with pytest.raises(InputError, match="by a text, a number or a list of them, not by None"):
        table.where(layer=None)


SEVERAL_TEXTS = ["intrinsic_dimension", "anisotropy", "infonce", "dime", "lidar"]  # undefined for one


def test_what_is_undefined_for_one_text_is_counted_as_skipped_and_shown(tiny_llama, capsys):
    table = layerwise.scan(tiny_llama, TEXTS[:1], metrics="all", progress=True)
    assert "reading 1 text from a list of 1 text" in capsys.readouterr().err
    for row in table:
        if row.metric in SEVERAL_TEXTS:
            assert math.isnan(row.value) and (row.n, row.skipped) == (0, 1), row.metric
        else:
            assert math.isfinite(row.value) and (row.n, row.skipped) == (1, 0), row.metric
            assert row.value or math.copysign(1, row.value) > 0, f"-0 of {row.metric}"
    lines = repr(table).splitlines()
    assert lines[0].startswith(f"llama, 1 text, {DEPTH + 1} layers") and lines[1].endswith("; n/a: undefined")
    assert "nan" not in repr(table) and "-0" not in repr(table)
    shown = {line.split()[0]: line.split()[1] for line in lines[3:]}
    assert [name for name, first in shown.items() if first == "n/a"] == SEVERAL_TEXTS


@pytest.mark.parametrize(("mark", "noun"), [(";", "semicolons"), ("\t", "tabs")])
def test_a_csv_with_other_separators_is_named_with_what_converts_it(mark, noun, tiny_llama, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "t.csv"
    path.write_text(f"text{mark}label\nw1 w2, w3{mark}007\nw4 w5{mark}NA\n")
    with pytest.raises(InputError, match=f"has {noun} between its columns, not commas") as refused:
        layerwise.scan(tiny_llama, str(path))
    with pytest.raises(InputError, match=noun):
        read_table(path)
    exec(str(refused.value).splitlines()[-1])  # what the message asks to run
    assert read_table("NEW.csv").to_dict("list") == {"text": ["w1 w2, w3", "w4 w5"], "label": ["007", "NA"]}
    path.write_text(f"text{mark}label\nw1{mark}1\n")
    assert [e.text for e in layerwise.texts(path, column=f"text{mark}label")] == [f"w1{mark}1"], "it was asked for"


BLANKS = {
    "t.txt": "w1 w2\n\n  \nw3 w4 w5\n",
    "t.csv": 'text,id\nw1 w2,a\n"",b\n  ,c\nw3 w4 w5,d\n',
    "t.jsonl": '{"text": "w1 w2"}\n{"text": ""}\n{"text": null}\n{"text": "w3 w4 w5"}\n',
}


@pytest.mark.parametrize("name", [*BLANKS, "t.parquet"])
def test_embed_keeps_a_row_for_each_row_of_the_file(name, tiny_llama, tmp_path, capsys):
    path, out = tmp_path / name, tmp_path / "v.parquet"
    if name == "t.parquet":
        pq.write_table(pa.table({"text": ["w1 w2", None, " ", "w3 w4 w5"]}), path)
    else:
        path.write_text(BLANKS[name])
    assert main(["embed", tiny_llama, "--data", str(path), "--layers", "1", "--out", str(out)]) == 0
    assert "2 blank rows" in capsys.readouterr().err
    rows = pq.read_table(out).to_pylist()
    assert [row["layer_1"] is None for row in rows] == [False, True, True, False]
    assert [row["text"] for row in rows][::3] == ["w1 w2", "w3 w4 w5"]
    alone = layerwise.embed(tiny_llama, ["w1 w2", "w3 w4 w5"], layers=1)
    assert rows[3]["layer_1"] == alone.layer_1[1].tolist()
    frame = layerwise.embed(tiny_llama, path, layers=1)
    assert frame.attrs["blank_rows"] == 2 and len(frame) == 4


def test_embed_keeps_the_ids_of_blank_rows_and_those_within_a_limit(tiny_llama, tmp_path):
    (tmp_path / "t.csv").write_text(BLANKS["t.csv"])
    frame = layerwise.embed(tiny_llama, layerwise.texts(tmp_path / "t.csv", id_column="id"), layers=1)
    assert list(frame.id) == ["a", "b", "c", "d"]
    assert len(layerwise.embed(tiny_llama, layerwise.texts(tmp_path / "t.csv", limit=2), layers=1)) == 4
    assert len(layerwise.embed(tiny_llama, layerwise.texts(tmp_path / "t.csv", limit=1), layers=1)) == 1


def test_scan_tells_how_many_blank_rows_it_passed_over(tiny_llama, tmp_path, capsys):
    (tmp_path / "t.txt").write_text(BLANKS["t.txt"])
    data, out = ["--data", str(tmp_path / "t.txt")], ["--out", str(tmp_path / "r")]
    call = ["scan", tiny_llama, *data, *out, "--metrics", "curvature"]
    for _ in ("the first time", "when it is all there"):
        assert main(call) == 0
        assert "2 blank rows" in capsys.readouterr().err
    assert layerwise.LayerTable.load(tmp_path / "r").run["data"]["blank_rows"] == 2
    assert layerwise.scan(tiny_llama, TEXTS, metrics="curvature").run["data"]["blank_rows"] == 0


def test_advice_on_numbers_that_are_not_finite_fits_the_number_type():
    assert "--dtype float32 or bfloat16" in not_finite_advice(torch.float16)
    assert not_finite_advice(torch.bfloat16).endswith("--dtype float32")
    for dtype in (torch.float32, torch.float64):
        assert "--dtype" not in not_finite_advice(dtype) and "check the weights" in not_finite_advice(dtype)


def test_embed_refuses_vectors_that_are_not_finite_as_scan_does(broken_llama, tmp_path, capsys):
    with pytest.raises(NotFiniteError, match=r"layer 2 contains NaN or infinity in torch.float32 for example"):
        layerwise.embed(broken_llama, TEXTS, layers="0,2")
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    out = tmp_path / "v.parquet"
    assert main(["embed", broken_llama, "--data", str(tmp_path / "t.txt"), "--layers", "2", "--out", str(out)]) == 2
    assert not out.exists()
    assert len(layerwise.embed(broken_llama, TEXTS, layers="0,1")) == len(TEXTS)


LONE = "w1 \ud83d w2"


def test_a_text_with_half_a_character_is_told_and_can_be_left_out(tiny_llama, tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [TEXTS[0], LONE, *TEXTS[1:]]))
    call = ["scan", tiny_llama, "--data", str(path), "--metrics", "curvature", "--json"]
    assert main(call) == 2
    printed = capsys.readouterr().err
    (example,) = [e for e in layerwise.texts(path) if e.text == LONE]
    assert example.id in printed and "lone surrogate" in printed and "unexpected" not in printed
    assert main([*call, "--allow-missing", "1"]) == 0
    output = capsys.readouterr()
    assert "left out 1 text that could not be computed" in output.err
    run = json.loads(output.out)
    assert run["run"]["data"]["missing"] == [example.id] and {row["missing"] for row in run["scores"]} == {1}
    without = layerwise.scan(tiny_llama, TEXTS, metrics="curvature")
    assert [row["value"] for row in run["scores"]] == pytest.approx([row.value for row in without], rel=1e-6)


def test_no_verb_ends_in_a_raw_error_over_half_a_character(reading_llama, tmp_path):
    tokenizer = tokenizer_of(reading_llama)
    data = [*TEXTS, LONE]
    for call in (
        lambda: layerwise.embed(reading_llama, data),
        lambda: layerwise.scan(reading_llama, data),
        lambda: layerwise.scan(reading_llama, data, metrics="infonce"),
        lambda: layerwise.lab.stress(reading_llama, data, kind="length", levels=[2]),
        lambda: layerwise.pick(reading_llama, data),
        lambda: layerwise.export(reading_llama, Recipe(1, transform="center"), tmp_path / "m", fit=data),
        lambda: layerwise.scan(reading_llama, layerwise.texts(data, min_tokens=2, tokenizer=tokenizer)),
    ):
        with pytest.raises(InputError, match="lone surrogate"):
            call()


def tokenizer_of(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_n_and_skipped_of_a_sample_count_the_same_examples():
    """Of 1,000 examples, every fifth undefined, a sample of 16 reaches about 20: not 16 of them and 200 skipped."""
    from layerwise.metrics.accumulators.row_sample import RowSample

    keys = torch.randperm(1000, generator=torch.Generator().manual_seed(3)).to(torch.int64)
    rows = torch.randn(1000, 1, 3, generator=torch.Generator().manual_seed(4))
    rows[keys % 5 == 0] = torch.nan
    whole, parts = RowSample(3, size=16), [RowSample(3, size=16) for _ in range(7)]
    whole.update(keys, rows)
    for i, part in enumerate(parts):
        part.update(keys[i::7], rows[i::7])
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(RowSample.from_state(part.to_state()))
    assert whole.keys.tolist() == merged.keys.tolist() == [k for k in range(20) if k % 5]
    assert whole.skipped == merged.skipped == RowSample.from_state(whole.to_state()).skipped == 4  # 0, 5, 10, 15
    assert [whole.skipped_before(n) for n in (1, 4, 5, 16)] == [1, 1, 2, 4]
    few = RowSample(3, size=2000)
    few.update(keys, rows)
    assert (len(few.keys), few.skipped) == (800, 200), "where all fit into the sample, all are counted"


def test_every_row_of_a_scan_counts_n_and_skipped_over_the_same_examples(tiny_llama, monkeypatch):
    """Texts of one token have no value without their first; samples of 7 are smaller than the data."""
    from layerwise.metrics import readings

    for name in ("SAMPLE_ROWS", "SAMPLE_PAIRS"):
        monkeypatch.setattr(readings, name, 7)
    texts = [f"w{i}" if i % 2 else f"w{i} w{i + 1} w{i + 2}" for i in range(40)]
    metrics = "intrinsic_dimension,top_share,dataset_entropy,effective_rank,mean_norm"
    table = layerwise.scan(tiny_llama, texts, metrics=metrics, tokens="no_first", rows="raw,centered_unit", layers=1)
    reached = {}
    for row in table:
        if (sampled := row.metric == "intrinsic_dimension" or row.rows == "centered_unit") or row.metric == "mean_norm":
            reached.setdefault(sampled, set()).add(row.n + row.skipped)
    defined = [" " in example.text for example in sorted(layerwise.texts(texts), key=lambda example: example.key)]
    seventh = [place for place, known in enumerate(defined, start=1) if known][6]
    assert 7 < seventh < 27
    assert reached == {False: {40}, True: {seventh}}


def test_blocks_count_what_was_skipped_on_the_way_to_their_last_pair():
    from layerwise.metrics.accumulators.row_sample import RowSample
    from layerwise.metrics.scores import block_score

    keys, rows = torch.arange(30), torch.randn(30, 2, 3)
    rows[[2, 11, 29]] = torch.nan
    kept = RowSample(3, views=2, size=100)
    kept.update(keys, rows)
    estimate = block_score(lambda a, b: (a - b).norm(), 10)(kept, "raw")
    assert (estimate.n, estimate.skipped) == (20, 2) != (20, 3), "27 pairs are two blocks of 10: keys 0 to 21"


def test_scoring_leaves_the_datasets_library_as_it_is(tiny_llama, tmp_path, monkeypatch):
    import datasets
    from mteb import evaluate

    def own():
        return {name: value for name, value in vars(datasets.Dataset).items() if name != "__slotnames__"}  # of copy

    usual, seen = own(), []
    table = pd.DataFrame({"text": [f"w{i} w{i + 1}" for i in range(20)], "label": ["a", "b"] * 10})
    write_task(tmp_path / "root", "Own", "Classification", table, table)
    others = datasets.Dataset.from_dict({"text": ["x"]})

    def watched(encoder, task, **options):
        seen.append((own() == usual, type(others["text"]), type(task.dataset["test"]["text"])))
        return evaluate(encoder, task, **options)

    monkeypatch.setattr("mteb.evaluate", watched)
    layerwise.eval(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "e", layers="1")
    assert seen == [(True, datasets.Column, list)]


def test_copies_of_a_task_with_quick_columns_hold_the_same_and_stay_quick():
    from datasets import Dataset, DatasetDict

    from layerwise.verbs.eval.scoring import columns_as_lists

    given = {"en": DatasetDict({"test": Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 1, 0]})}), "n": 3}
    made = columns_as_lists(given)
    part = made["en"]["test"]
    assert type(given["en"]["test"]) is Dataset and isinstance(made["en"], DatasetDict) and made["n"] == 3
    for quick in (part, part.select([2, 0, 1]), part.select_columns(["label"]), part.rename_column("text", "other")):
        assert type(quick["label"]) is list
    assert part.select([2, 0])["text"] == ["c", "a"] and part[0] == {"text": "a", "label": 0}


THREADS = """
from layerwise.engines.local import local_processes

def pools():
    import numpy, scipy.linalg, torch
    from threadpoolctl import threadpool_info
    return [pool["num_threads"] for pool in threadpool_info()] + [torch.get_num_threads()]

if __name__ == "__main__":
    with local_processes(1) as processes:
        (found,) = processes.results(pools, [()])
    print(sorted(set(found)), len(found))
"""


def test_a_scoring_process_has_one_thread_in_every_library(tmp_path):
    (tmp_path / "threads.py").write_text(THREADS)
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    many = free | {"OPENBLAS_NUM_THREADS": "3"}  # as if the machine had three cores
    printed = subprocess.check_output([sys.executable, str(tmp_path / "threads.py")], text=True, env=many)
    ones, libraries = printed.rsplit(" ", 1)
    assert ones == "[1]" and int(libraries) >= 2


@pytest.mark.parametrize("kind", ["Classification", "Clustering", "STS", "PairClassification"])
def test_no_label_is_read_row_by_row(kind, tiny_llama, tmp_path, monkeypatch):
    """Row by row, reading labels takes far longer than scoring."""
    import datasets

    texts = [f"w{i} w{i + 1}" for i in range(20)]
    table = pd.DataFrame({"text": texts, "label": ["a", "b"] * 10})
    if kind in ("STS", "PairClassification"):
        last = "score" if kind == "STS" else "labels"
        table = pd.DataFrame({"sentence1": texts, "sentence2": texts[::-1], last: [0, 1] * 10})
    write_task(tmp_path / "root", "Own", kind, table, table if kind == "Classification" else None)
    monkeypatch.setattr(datasets.Column, "__iter__", lambda column: pytest.fail("a column is read row by row"))
    made = layerwise.eval(tiny_llama, "all", data_root=tmp_path / "root", out=tmp_path / "e", layers="1")
    assert len(made) == 1


def bomb(levels):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, levels)]
    return "\n".join([*lines, "out: o", f"models: *a{levels - 1}", ""])


@pytest.mark.parametrize("content", [bomb(9), "[" * 200_000, "x" * 300_000], ids=["aliases", "nested", "large"])
def test_a_campaign_that_would_fill_the_memory_is_refused_at_once(content, tmp_path):
    import time
    import tracemalloc

    from layerwise.verbs.campaign.plan import Campaign

    (tmp_path / "c.yaml").write_text(content)
    began = time.process_time()
    with pytest.raises(InputError, match="c.yaml"):
        Campaign.load(tmp_path / "c.yaml")
    assert time.process_time() - began < 5, "a fraction of a second; the bomb took half a minute"
    tracemalloc.start()
    with pytest.raises(InputError):
        Campaign.load(tmp_path / "c.yaml")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize("verb", ["plan", "scan", "embed", "doctor"])
def test_a_config_of_too_many_blocks_is_refused_before_it_is_built(verb, tiny_llama, tmp_path, monkeypatch):
    import shutil

    from layerwise.core.errors import ModelError

    folder = tmp_path / "deep"
    shutil.copytree(tiny_llama, folder)
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(record | {"num_hidden_layers": 200_000}))
    monkeypatch.setattr("transformers.AutoModel.from_config", lambda *_, **__: pytest.fail("it was built"))
    monkeypatch.setattr("transformers.AutoModel.from_pretrained", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(ModelError, match="num_hidden_layers = 200,000"):
        getattr(layerwise, verb)(str(folder), *([] if verb == "doctor" else [TEXTS]))


def test_the_blocks_of_nested_configs_count_as_well():
    from layerwise.core.errors import ModelError
    from layerwise.models.load import require_buildable

    require_buildable({"num_hidden_layers": 1999, "max_position_embeddings": 10**6, "block_size": 10**6}, "m")
    for record in ({"text_config": {"n_layer": 10**6}}, {"encoder_layers": 10**6}, {"num_local_experts": 10**6}):
        with pytest.raises(ModelError, match="1,000,000"):
            require_buildable(record, "m")

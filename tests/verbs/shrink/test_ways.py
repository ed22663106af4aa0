"""shrink without a method: the cheap ways are made, measured and compared."""

import json
import random
from importlib.util import find_spec

import pytest
from embedders import ship_model
from families import make_model
from sentence_transformers import SentenceTransformer

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, MissingExtra, RunError
from layerwise.passes.timing import RelativeTime
from layerwise.runs.records import WAYS
from layerwise.verbs.report.ways_card import ways_card
from layerwise.verbs.shrink import ways as ways_module
from layerwise.verbs.shrink.ways import Way, block_counts, choose

NUMBERS = random.Random(0)
HALVES = [[f"w{NUMBERS.randrange(89)}" for _ in range(11 + i % 5)] for i in range(600)]
TEXTS = [" ".join([*half, *half[::-1]]) for half in HALVES]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ship_model(tmp_path_factory.mktemp("ways") / "model", make_model("bert"))


@pytest.fixture(scope="module")
def compared(tmp_path_factory, model):
    out = tmp_path_factory.mktemp("compared") / "out"
    return layerwise.shrink(model, TEXTS, out), out


def test_every_way_is_what_its_own_command_makes(compared, model, tmp_path):
    found, out = compared
    names = [way.name for way in found.ways]
    assert names[:4] == ["whole", "blocks-2", "blocks-1", "static"]
    assert ("int8" in names) == (find_spec("onnxruntime") is not None) and set(found.not_made) <= {"int8"}
    layerwise.shrink(model, TEXTS, tmp_path / "alone", blocks=2)
    layerwise.shrink(model, TEXTS, tmp_path / "static", method="static")
    for name, alone in (("blocks-2", "alone"), ("static", "static")):
        same = [(folder / "model.safetensors") for folder in (out / name, tmp_path / alone)]
        assert same[0].read_bytes() == same[1].read_bytes() if name != "static" else same[0].exists()
        record = json.loads((out / name / "layerwise.json").read_text())
        own = record["shrunk"] or record["static"]
        (way,) = [way for way in found.ways if way.name == name]
        assert way.agreement == own["agreement"] and way.compatibility == own["compatibility"]
        SentenceTransformer(str(out / name), device="cpu").encode(["w1 w2"])
    assert not out.with_name("out.work").exists(), "what was only needed on the way is gone"


def test_the_record_holds_what_is_printed(compared):
    found, out = compared
    record = WAYS.parse((out / "ways.json").read_bytes(), "ways.json")
    assert record["recommended"] == found.recommended and record["data"]["count"] == 480
    assert [way["name"] for way in record["ways"]] == [way.name for way in found.ways]
    assert record["model"]["fingerprint"] and found.model.fingerprint == record["model"]["fingerprint"]
    printed = str(found)
    assert all(len(line) <= 100 for line in printed.splitlines())
    for way in found.ways[1:]:
        assert way.words in printed and len(way.times) == 4 and f"{way.times['1 short'].ratio:.2f}" in printed
    flat = " ".join(printed.split())
    assert "recommended: " in flat and "not tried: training 1 of 3 blocks (--method distill --blocks 1" in flat


def test_the_same_call_again_makes_nothing_anew(compared, model, monkeypatch):
    found, out = compared
    monkeypatch.setattr(ways_module, "export_static", lambda *args: pytest.fail("made again"))
    monkeypatch.setattr(ways_module, "export", lambda *args, **options: pytest.fail("made again"))
    again = layerwise.shrink(model, TEXTS, out)
    assert [way.compatibility for way in again.ways[:4]] == [way.compatibility for way in found.ways[:4]]
    with pytest.raises(RunError, match="with other settings"):
        layerwise.shrink(model, TEXTS[:300], out)


def test_a_way_that_cannot_be_made_is_named_with_its_reason(model, tmp_path, monkeypatch, capsys):
    def refuse(*args, **options):
        raise MissingExtra("--format onnx needs onnxruntime")

    monkeypatch.setattr(ways_module, "export", refuse)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:200]))
    words = ["shrink", model, "--data", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "out")]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["not_made"] == {"int8": "--format onnx needs onnxruntime"}
    assert main(words) == 0
    assert "not made: int8: --format onnx needs onnxruntime" in capsys.readouterr().out


def test_a_folder_that_is_not_ours_is_left_alone(model, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    for options in ({"out": tmp_path / "mine"}, {"out": tmp_path / "new", "work": tmp_path / "mine"}):
        with pytest.raises(RunError, match="is not empty"):
            layerwise.shrink(model, TEXTS, **options)
    with pytest.raises(InputError, match="shrink needs texts"):
        layerwise.shrink(model, None, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_report_shows_the_picture_and_the_table(compared, tmp_path):
    found, out = compared
    text = layerwise.report(out, html=tmp_path / "page.html").read_text()
    assert text.count("<circle") == 1 + sum(bool(way.compatibility["cases"]) for way in found.ways[1:])
    for way in found.ways:
        assert f">{way.words}<" in text
    assert found.texts["fingerprint"] in text and "1 comparison by shrink" in text
    record = WAYS.parse((out / "ways.json").read_bytes(), "ways.json")
    hostile = "<script>alert(1)</script>"
    record["ways"][1]["words"] = record["answer"][0] = record["data"]["name"] = hostile
    assert hostile not in ways_card(record) and "&lt;script&gt;" in ways_card(record)


# The choice


def way(name, time, advice, loss=0.0, cases=True):
    mean = {"mean": loss, "interval": (loss - 0.01, loss + 0.01)}
    search = {"advice": advice, "answer": f"answer of {name}", "cases": {"new_old": {"loss": mean}} if cases else None}
    return Way(name, f"words of {name}", 1, {"1 short": RelativeTime(time, time, time)}, {"groups": []}, search)


WHOLE = Way("whole", "the whole model", 1, {"1 short": RelativeTime(1, 1, 1)})


def test_the_fastest_way_that_keeps_the_index_is_recommended():
    slow, fast, lossy = way("slow", 0.8, "keep"), way("fast", 0.5, "keep"), way("lossy", 0.1, "original", 0.2)
    name, answer = choose([WHOLE, slow, lossy, fast])
    assert name == "fast" and "0.50 of the time" in answer[0] and "answer of fast" in answer[1]


def test_the_model_stays_where_nothing_keeps_the_index_or_is_faster():
    lossy, worse = way("lossy", 0.5, "original", 0.03), way("worse", 0.2, "re-embed", 0.2)
    name, answer = choose([WHOLE, worse, lossy])
    assert name == "" and "keep your model" in answer[0] and "words of lossy loses" in answer[0]
    assert choose([WHOLE, way("equal", 0.95, "keep")])[0] == ""
    name, answer = choose([WHOLE, way("unknown", 0.5, "unknown", cases=False)])
    assert name == "" and "until a search can be tested (answer of unknown)" in answer[0]


def test_numbers_of_blocks():
    assert [block_counts(depth) for depth in (1, 2, 3, 4, 6, 12)] == [[], [1], [2, 1], [3, 2], [4, 3], [9, 6]]

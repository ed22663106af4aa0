"""Export formats of other programs: each file, run by that program, gives the vectors that were measured."""

import json

import numpy as np
import pytest
from families import make_model, make_tokenizer
from tokenizers import Tokenizer

import layerwise
from layerwise.core.errors import ExportError, MissingExtra
from layerwise.models.load import build_network
from layerwise.verbs.export.backends import graph

pytest.importorskip("sentence_transformers")
ort = pytest.importorskip("onnxruntime")
MAPPED = {"pooling": "last", "transform": "remove_top:2@7", "normalize": True, "template": "w1 {text} w2"}


def run_graph(folder, texts, file="onnx/model.onnx"):
    """The lines of the model card."""
    session = ort.InferenceSession(str(folder / file))
    batch = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(list(texts))
    ids, mask = np.array([t.ids for t in batch]), np.array([t.attention_mask for t in batch])
    return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


CASES = {"map and template": ("llama", MAPPED), "prompt": ("bert", {"template": "w1 {text}"})}


@pytest.fixture(scope="module", params=["map and template", pytest.param("prompt", marks=pytest.mark.long)])
def exported(request, tmp_path_factory):
    """A folder in ONNX, texts, and what sentence-transformers gives for the same recipe; tracing a graph is slow."""
    family, options = CASES[request.param]
    folder = tmp_path_factory.mktemp("onnx")
    texts = [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 27)) for i in range(43)]
    model = build_network(make_model(family), make_tokenizer(), family)
    options = options | {"texts": texts, "max_length": 16} | ({"fit": texts} if "transform" in options else {})
    wanted = layerwise.export(model, 2, folder / "st", **options).encode(texts)
    layerwise.export(model, 2, folder / "onnx", format="onnx", **options)
    prompt = "" if "transform" in options else "w1 "
    return folder / "onnx", texts, [prompt + text for text in texts], wanted


def test_an_onnx_graph_gives_the_measured_vectors(exported):
    out, _, texts, wanted = exported
    alone = np.concatenate([run_graph(out, [text]) for text in texts[:5]])
    limit = 1e-5 * np.abs(wanted).max()
    assert np.abs(run_graph(out, texts) - wanted).max() <= limit, "padded"
    assert np.abs(alone - wanted[:5]).max() <= limit, "alone"


def test_the_int8_graph_is_measured_and_reported(exported):
    out, _, texts, wanted = exported
    record = json.loads((out / "layerwise.json").read_text())
    int8 = record["variants"]["int8"]
    own = run_graph(out, texts, int8["file"])
    cosine = (own * wanted).sum(1) / np.linalg.norm(own, axis=1) / np.linalg.norm(wanted, axis=1)
    assert 0.9 < cosine.min() < 1 and 0.9 < int8["min_cosine"] < 1
    assert int8["bytes"] == (out / int8["file"]).stat().st_size
    assert record["parameters"]["after"] > 0 and record["backend"] == "onnx"
    card = (out / "README.md").read_text()
    assert int8["file"] in card and "session.run" in card


def test_the_onnx_folder_has_the_files_that_other_readers_look_for(exported):
    out, texts, prompted, _ = exported
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert names == {
        "README.md", "config.json", "config_sentence_transformers.json", "layerwise.json", "onnx/model.onnx",
        "onnx/model_quantized.onnx", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 16
    assert len(Tokenizer.from_file(str(out / "tokenizer.json")).encode("w1 " * 40).ids) == 16
    assert ("Put the prompt 'w1 ' before every text" in (out / "README.md").read_text()) == (texts != prompted)


@pytest.mark.long
def test_openvino_gives_the_measured_vectors(tiny_llama, word_texts, tmp_path):
    openvino = pytest.importorskip("openvino")
    wanted = layerwise.export(tiny_llama, 2, tmp_path / "st", texts=word_texts).encode(word_texts)
    layerwise.export(tiny_llama, 2, tmp_path / "m", format="openvino", texts=word_texts)
    path = str(tmp_path / "m" / "openvino" / "openvino_model.xml")
    model = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    batch = Tokenizer.from_file(str(tmp_path / "m" / "tokenizer.json")).encode_batch(word_texts)
    ids, mask = np.array([t.ids for t in batch]), np.array([t.attention_mask for t in batch])
    found = model({"input_ids": ids, "attention_mask": mask})[0]
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert json.loads((tmp_path / "m" / "layerwise.json").read_text())["parameters"]["after"] > 0


def test_a_graph_that_gives_other_vectors_is_not_kept(tiny_llama, word_texts, tmp_path, monkeypatch):
    forward = graph.Graph.forward

    modes = []

    def wrong(self, input_ids, attention_mask):
        modes.append(self.training)
        return 1.001 * forward(self, input_ids, attention_mask)

    monkeypatch.setattr(graph.Graph, "forward", wrong)
    with pytest.raises(ExportError, match="so it was not kept"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", format="onnx", texts=word_texts)
    assert not list(tmp_path.iterdir())
    assert modes and not any(modes), "torch warns about a model in training mode"


def test_a_missing_package_is_named_with_the_extra(tiny_llama, word_texts, tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(MissingExtra, match=r"--format onnx needs onnxscript: pip install 'layerwise\[onnx\]'"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", format="onnx", texts=word_texts)

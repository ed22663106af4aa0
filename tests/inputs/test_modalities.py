"""Modalities: a toy one written here (walks of four numbers per step) goes through every verb that knows no text.

Nothing in src knows of walks: the module, its processor and its perturbation are all that a new modality needs.
"""

import ast
import math
import pickle

import numpy as np
import pytest
import torch
from places import SRC
from stopping import stop_after
from walks import STEPS, Walker, WalkProcessor

import layerwise
from layerwise.core.errors import InputError, LayerwiseError, ModelError
from layerwise.inputs.modalities import processor_for
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Example, Source, content_bytes
from layerwise.inputs.text_processor import TextProcessor
from layerwise.models.load import load_tokenizer
from layerwise.verbs.scan import worker


def walks(n=41, *, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=(random.integers(5, 19), STEPS)).cumsum(0).astype(np.float32) for _ in range(n)]


def source_of(given, ids=None):
    return Source("walks", lambda: zip(ids or [None] * len(given), given, strict=True), unit="walk")


def values_of(table):
    return table.to_pandas().set_index(["layer", "tokens", "pooling", "rows", "metric"]).value


def alike(one, other):
    a, b = values_of(one), values_of(other)
    assert list(a.index) == list(b.index)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert one.run["data"]["fingerprint"] == other.run["data"]["fingerprint"]


MODEL = (Walker(), WalkProcessor())
ASKED = {"metrics": "all", "tokens": "all,no_special"}

# --- what must work with it ---


def test_every_metric_scans_a_modality_of_ones_own():
    table = layerwise.scan(MODEL, source_of(walks()), shard_size=23, **ASKED)
    values = values_of(table)
    assert {name for *_, name in values.index} >= {m.name for m in layerwise.CATALOG}
    assert np.isfinite(values).all()
    with_class, without = (values.xs(word, level="tokens").sort_index() for word in ("all", "no_special"))
    assert (with_class != without).any(), "the class position is special"
    facts = table.run["data"]
    assert (facts["prompts"], facts["cut"], facts["tokens"]) == (41, 0, sum(1 + len(walk) for walk in walks()))


def test_the_numbers_are_those_of_the_hidden_states():
    """The mean over the steps, by hand; the class position is special, and left out."""
    vectors = layerwise.embed(MODEL, source_of(walks()), layers="0,2", tokens="no_special", pooling="mean")
    assert list(vectors.columns) == ["id", "layer_0", "layer_2"], "walks are no texts"
    module = MODEL[0]
    with torch.inference_mode():
        for walk, row in zip(walks(), vectors.itertuples(), strict=True):
            hidden = torch.cat([module.start[0], module.embed(torch.from_numpy(walk))])[None]
            np.testing.assert_allclose(row.layer_0, hidden[0, 1:].mean(0), rtol=1e-4, atol=1e-5)
            hidden = module.blocks[1](module.blocks[0](hidden))
            np.testing.assert_allclose(row.layer_2, hidden[0, 1:].mean(0), rtol=1e-4, atol=1e-5)


def test_batch_size_shards_and_order_do_not_matter():
    whole = layerwise.scan(MODEL, source_of(walks()), **ASKED)
    alike(whole, layerwise.scan(MODEL, source_of(walks()), shard_size=7, batch_tokens=1, **ASKED))
    alike(whole, layerwise.scan(MODEL, source_of(walks()[::-1]), **ASKED))


def test_a_stopped_scan_goes_on_and_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.scan.execute.SECONDS_BETWEEN_CHECKPOINTS", 0)
    whole = layerwise.scan(MODEL, source_of(walks()), shard_size=23, out=tmp_path / "whole", **ASKED)
    stopping = stop_after(1)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", stopping)
    with pytest.raises(KeyboardInterrupt):
        layerwise.scan(MODEL, source_of(walks()), shard_size=23, out=tmp_path / "run", **ASKED)
    monkeypatch.setattr("layerwise.verbs.scan.shards.scan_shard", worker.scan_shard)
    resumed = layerwise.scan(MODEL, source_of(walks()), shard_size=23, out=tmp_path / "run", **ASKED)
    assert values_of(whole).equals(values_of(resumed)) and len(stopping.calls) == 1
    states = [next((tmp_path / name).glob("state-*")).read_bytes() for name in ("whole", "run")]
    assert states[0] == states[1]


def test_two_runs_on_the_same_examples_are_compared(tmp_path):
    layerwise.scan(MODEL, source_of(walks()), out=tmp_path / "a", **ASKED)
    layerwise.scan((Walker(1), WalkProcessor()), source_of(walks()), out=tmp_path / "b", **ASKED)
    compared = layerwise.compare([tmp_path / "a", tmp_path / "b"])
    assert "over 41 " in str(compared)


def test_other_content_under_the_same_ids_is_not_paired(tmp_path):
    ids = [str(i) for i in range(41)]
    layerwise.scan(MODEL, source_of(walks(), ids), out=tmp_path / "a", **ASKED)
    layerwise.scan(MODEL, source_of(walks(seed=1), ids), out=tmp_path / "b", **ASKED)
    compared = str(layerwise.compare([tmp_path / "a", tmp_path / "b"]))
    assert "CKA at equal depth" not in compared and "41 ids" in compared


def test_views_come_from_the_processors_perturbation():
    """Without noise all views of a walk are equal, and InfoNCE finds each pair."""
    loss = lambda strength: values_of(  # noqa: E731
        layerwise.scan(MODEL, source_of(walks()), metrics="infonce", view_strength=strength)
    ).iloc[-1]
    assert loss(1.0) > loss(0.01)
    one, same, other = (
        values_of(layerwise.scan(MODEL, source_of(walks()), metrics="infonce", seed=seed)) for seed in (0, 0, 1)
    )
    assert one.equals(same) and not one.equals(other)


def test_a_processor_is_part_of_the_models_fingerprint(tmp_path):
    first = layerwise.scan(MODEL, source_of(walks()), out=tmp_path, metrics="curvature")
    other = layerwise.scan((Walker(), WalkProcessor(2.0)), source_of(walks()), metrics="curvature")
    assert first.run["model"]["fingerprint"] != other.run["model"]["fingerprint"]
    with pytest.raises(LayerwiseError, match="contains a different scan .model: "):
        layerwise.scan((Walker(), WalkProcessor(2.0)), source_of(walks()), out=tmp_path, metrics="curvature")


# --- what must be refused ---


def test_what_works_on_texts_only_says_so(tiny_llama, tmp_path):
    with pytest.raises(InputError, match="inputs do not support the stress random; supported: none"):
        layerwise.lab.stress(MODEL, source_of(walks()), kind="random")
    layerwise.scan(MODEL, source_of(walks()), out=tmp_path / "run", metrics="curvature")
    for verb in (
        lambda: layerwise.doctor(MODEL),
        lambda: layerwise.export(MODEL, 1, tmp_path / "model"),
        lambda: layerwise.pick(MODEL, fit=["a text of some words"] * 9),
        lambda: layerwise.eval(MODEL, "STSBenchmark", out=tmp_path / "eval"),
        lambda: layerwise.lab.tradeoff(tmp_path / "run", "curvature", model=MODEL),
    ):
        with pytest.raises(
            InputError, match="works on texts only, but this model has no tokenizer; .* a WalkProcessor"
        ):
            verb()
    with pytest.raises(InputError, match="is a ndarray, not a text"):
        layerwise.scan(tiny_llama, source_of(walks()))
    with pytest.raises(InputError, match="walks contains no walk"):
        layerwise.scan(MODEL, source_of([None, None]), metrics="curvature")


def test_a_module_needs_a_tokenizer_or_a_processor(tiny_llama):
    with pytest.raises(InputError, match="with a NoneType: pass a tokenizer"):
        layerwise.scan((Walker(), None), source_of(walks()))
    with pytest.raises(ModelError, match="takes values, not token ids"):
        layerwise.scan((Walker(), load_tokenizer(layerwise.ModelSpec(tiny_llama))), ["a"])

    class Half:
        def identity(self):
            return "nothing else"

    with pytest.raises(InputError, match="cannot make inputs with a Half"):
        layerwise.scan((Walker(), Half()), source_of(walks()))


# --- the parts ---


def test_a_processor_is_recognised_and_text_is_one(tiny_llama):
    tokenizer = load_tokenizer(layerwise.ModelSpec(tiny_llama))
    assert isinstance(processor_for(tokenizer), TextProcessor) and isinstance(processor_for(tokenizer), Processor)
    own = WalkProcessor()
    assert processor_for(own) is own


def test_content_is_told_apart_by_type_shape_and_bytes():
    zeros = np.zeros((2, 3), np.float32)
    variants = [zeros, zeros.T, zeros.astype(np.float64), zeros.astype(np.int32), zeros + 1, zeros.reshape(6), "0"]
    assert len({content_bytes(payload) for payload in variants}) == len(variants)
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert content_bytes(fortran) == content_bytes(np.ascontiguousarray(fortran)), "the layout in memory is no content"
    with pytest.raises(InputError, match="array of dtype object"):
        content_bytes(np.array([None]))
    with pytest.raises(InputError, match="cannot hold a float"):
        content_bytes(math.pi)


def test_a_payload_of_its_own_kind_gives_its_bytes():
    class Clip:
        def content_bytes(self):
            return b"16000 Hz, three samples"

    assert Example("a", Clip()).digest == Example("a", b"16000 Hz, three samples").digest


def test_examples_are_equal_by_id_and_content():
    one, same, other = Example("a", np.arange(3)), Example("a", np.arange(3)), Example("a", np.arange(1, 4))
    assert one == same == pickle.loads(pickle.dumps(one)) != other and hash(one) == hash(same)
    assert one.key == other.key and one.digest != other.digest
    with pytest.raises(InputError, match="example a is a ndarray, not a text"):
        one.text  # noqa: B018


# --- nothing about text where every modality passes ---

ROOMS = ("passes", "runs", "verbs/scan")
FOR_USERS = {"api.py", "command.py", "options.py", "metric_list.py"}  # of a verb: what they say is about texts
WORDS = {"tokenizer", "tokenizers", "text", "texts"}


def about_text(code):
    """Identifiers, imported modules and keys in a syntax tree that belong to texts alone."""
    found = []
    for node in ast.walk(ast.parse(code)):
        names = [getattr(node, field) for field in ("id", "attr", "arg", "name", "module") if hasattr(node, field)]
        names += [alias.name for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.append(node.value)  # a key such as inputs["input_ids"]; sentences are for people
        for name in filter(None, names):
            if "input_ids" in name or WORDS & set(name.replace(".", "_").lower().split("_")):
                found.append(name)
    return found


@pytest.mark.parametrize("planted", [
    "network.tokenizer", "def encode_texts(): pass", "inputs['input_ids']", "from layerwise.inputs.text import x",
    "f(text=1)", "lambda text: 0", "import layerwise.inputs.text_processor", "class Text: pass",
])  # fmt: skip
def test_a_planted_word_about_text_is_found(planted):
    assert about_text(planted)
    assert not about_text("context = tokens_of(example); raise InputError('these texts are too long')")


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_that_every_modality_passes_know_nothing_of_text(room):
    files = [path for path in sorted((SRC / room).rglob("*.py")) if path.name not in FOR_USERS]
    found = [f"{path.relative_to(SRC)}: {name}" for path in files for name in about_text(path.read_text())]
    assert files and not found, "\n".join(found)

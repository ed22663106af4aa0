"""Hidden states that are computed elsewhere: read from files as vLLM writes them, and from vLLM itself."""

import sys
from functools import partial

import numpy as np
import pytest
import torch
from families import DEPTH, WIDTH
from safetensors.torch import save_file

import layerwise
from layerwise.core.errors import InputError, MissingExtra, ModelError
from layerwise.engines.options import Vllm
from layerwise.models.elsewhere.network import open_elsewhere
from layerwise.models.elsewhere.vllm import open_vllm, vllm_python, vllm_version
from layerwise.models.opening import open_network
from layerwise.models.spec import ModelSpec

ALL = list(range(DEPTH + 1))


def keep(found, number, hidden):
    found.append(hidden[0].clone())


def write_states(folder, model, texts, layers=ALL, dtype=torch.float32):
    """One file per text, as vLLM writes them."""
    folder.mkdir()
    network = open_network(model)
    for number, text in enumerate(texts):
        ids = torch.tensor([network.tokenizer(text)["input_ids"]])
        found = []
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        network.read_layers(inputs, layers, partial(keep, found))
        states = torch.stack(found, dim=1).to(dtype)
        save_file({"hidden_states": states, "token_ids": ids[0]}, folder / f"{number}.safetensors")
    return str(folder)


@pytest.fixture
def states(tiny_llama, word_texts, tmp_path):
    return write_states(tmp_path / "states", tiny_llama, word_texts)


def test_a_scan_of_stored_states_gives_the_numbers_of_the_model(tiny_llama, word_texts, states):
    options = {"metrics": "fast", "norm": "raw,normed"}
    here = layerwise.scan(tiny_llama, word_texts, **options)
    stored = layerwise.scan(ModelSpec(tiny_llama, states=states), word_texts, **options)
    assert len(here) == len(stored) > 0
    for one, other in zip(here, stored, strict=True):
        assert (one.layer, one.norm, one.metric) == (other.layer, other.norm, other.metric)
        assert other.value == pytest.approx(one.value, rel=1e-4, abs=1e-6, nan_ok=True)
    assert stored.model.engine.startswith("stored hidden states") and not here.model.engine
    assert not stored.model.same_as(here.model)


def test_embed_reads_stored_states(tiny_llama, word_texts, states):
    options = {"layers": f"1,{DEPTH}", "norm": "normed"}
    here = layerwise.embed(tiny_llama, word_texts, **options)
    stored = layerwise.embed(ModelSpec(tiny_llama, states=states), word_texts, **options)
    for name in ("layer_1", f"layer_{DEPTH}"):
        np.testing.assert_allclose(np.stack(stored[name]), np.stack(here[name]), rtol=1e-4, atol=1e-5)


def test_the_identity_follows_what_is_in_the_files(tiny_llama, word_texts, tmp_path):
    identities = []
    for name, dtype in (("a", torch.float32), ("b", torch.float32), ("c", torch.bfloat16)):
        folder = write_states(tmp_path / name, tiny_llama, word_texts[:3], dtype=dtype)
        spec = ModelSpec(tiny_llama, states=folder, dtype=str(dtype).removeprefix("torch."))
        identities.append(open_network(spec, states_only=True).identity())
    assert identities[0].same_as(identities[1]) and not identities[0].same_as(identities[2])


def test_files_without_layer_0_or_with_chosen_layers_are_read_as_such(tiny_llama, word_texts, tmp_path):
    for name, layers in (("later", ALL[1:]), ("chosen", [1, DEPTH])):
        folder = write_states(tmp_path / name, tiny_llama, word_texts, layers)
        spec = ModelSpec(tiny_llama, states=folder)
        numbers = ",".join(map(str, layers))
        here = layerwise.scan(tiny_llama, word_texts, metrics="mean_norm", layers=numbers)
        stored = layerwise.scan(spec, word_texts, metrics="mean_norm", layers=numbers)
        assert [row.value for row in stored] == pytest.approx([row.value for row in here], rel=1e-5)
        with pytest.raises(
            InputError, match=r"no layer 0; pass --layers 1,2" if name == "later" else "do not say which"
        ):
            layerwise.scan(spec, word_texts, metrics="mean_norm")


def damage(path, **tensors):
    path.unlink()
    save_file(tensors, path)


TOKENS = torch.arange(3)
DAMAGES = {
    "another width": (
        lambda p: damage(p, hidden_states=torch.zeros(3, DEPTH, WIDTH + 1), token_ids=TOKENS),
        "expected",
    ),
    "fewer tokens": (lambda p: damage(p, hidden_states=torch.zeros(2, DEPTH, WIDTH), token_ids=TOKENS), "3 tokens"),
    "other layers": (
        lambda p: damage(p, hidden_states=torch.zeros(3, 1, WIDTH), token_ids=TOKENS),
        "different numbers",
    ),
    "other tensors": (lambda p: damage(p, states=torch.zeros(3)), "not a file of hidden states"),
    "cut": (lambda p: p.write_bytes(p.read_bytes()[:-7]), "not a whole safetensors file"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_files_that_do_not_fit_are_refused_by_name(name, tiny_llama, word_texts, states, tmp_path):
    change, message = DAMAGES[name]
    change(tmp_path / "states" / "1.safetensors")
    with pytest.raises(InputError, match=message):
        layerwise.scan(ModelSpec(tiny_llama, states=states), word_texts, metrics="mean_norm")


def test_a_text_without_a_file_is_named_by_its_beginning(tiny_llama, word_texts, states):
    spec = ModelSpec(tiny_llama, states=states)
    with pytest.raises(InputError, match="holds the hidden states of the 3 tokens that begin with 'w7 w8 w9'"):
        layerwise.scan(spec, [*word_texts, "w7 w8 w9"], metrics="mean_norm")
    table = layerwise.scan(spec, [*word_texts, "w7 w8 w9"], metrics="mean_norm", allow_missing=1)
    assert len(table.run["data"]["missing"]) == 1 and table.run["data"]["prompts"] == len(word_texts)


def test_states_of_another_dtype_are_refused_with_the_dtype_to_pass(tiny_llama, word_texts, tmp_path):
    folder = write_states(tmp_path / "half", tiny_llama, word_texts, dtype=torch.bfloat16)
    with pytest.raises(InputError, match="pass --dtype bfloat16"):
        layerwise.scan(ModelSpec(tiny_llama, states=folder), word_texts, metrics="mean_norm")
    layerwise.scan(ModelSpec(tiny_llama, states=folder, dtype="bfloat16"), word_texts, metrics="mean_norm")


def test_what_needs_the_model_refuses_stored_states(tiny_llama, word_texts, states, tmp_path):
    spec = ModelSpec(tiny_llama, states=states)
    with pytest.raises(InputError, match="scan and embed alone"):
        layerwise.export(spec, 1, tmp_path / "out")
    with pytest.raises(InputError, match="not points inside"):
        layerwise.scan(spec, word_texts, metrics="mean_norm", inside=True)
    with pytest.raises(InputError, match="device-map"):
        open_elsewhere(ModelSpec(tiny_llama, device_map="auto"))


def test_only_the_final_norm_is_loaded(tiny_llama):
    network = open_elsewhere(ModelSpec(tiny_llama))
    loaded = [name for name, weight in network.module.named_parameters() if not weight.is_meta]
    assert loaded == ["norm.weight"]
    hidden = torch.randn(2, 3, WIDTH)
    assert torch.equal(network.normed(hidden), open_network(tiny_llama).normed(hidden))


def test_vllm_that_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LAYERWISE_VLLM", str(tmp_path / "python"))
    with pytest.raises(InputError, match="is no program"):
        vllm_python()
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without any package
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(MissingExtra, match="has no vLLM"):
        vllm_version(vllm_python())


def test_models_and_types_that_vllm_cannot_read_are_refused_before_it_starts(tiny_bert, tiny_llama, monkeypatch):
    monkeypatch.setenv("LAYERWISE_VLLM", sys.executable)
    with pytest.raises(ModelError, match="language models"), open_vllm(ModelSpec(tiny_bert), {}):
        pass
    with pytest.raises(InputError, match="float64"), open_vllm(ModelSpec(tiny_llama, dtype="float64"), {}):
        pass
    with pytest.raises(InputError, match="JSON object"):
        Vllm("tensor_parallel_size=2")

"""Weights that are stored quantised: read as transformers reads them, named in the identity, refused where they cannot
be used."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from transformers import AutoModel, TorchAoConfig

import layerwise
from layerwise.core.errors import MissingExtra, ModelError
from layerwise.models.load import identity_from_files, read_model_info
from layerwise.models.opening import open_network
from layerwise.models.quantized import PACKAGES, quantization_of
from layerwise.models.spec import ModelSpec

needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="needs torchao")


class Config:
    def __init__(self, **fields):
        self.__dict__ |= fields


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, ""),
        ({"quant_method": "gptq", "bits": 4}, "gptq 4 bits"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4Config"}}}, "torchao Int4Config"),
        ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, "torchao int8_weight_only"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "compressed-tensors pack-quantized"),
        ({"quant_method": "fp8"}, "fp8"),
        ({}, ""),
        ({"bits": 3}, "unknown 3 bits"),
    ],
)  # fmt: skip
def test_the_method_is_named(record, expected):
    assert quantization_of(Config(quantization_config=record)) == expected


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq", "hqq"])
def test_a_missing_package_is_named(method, tiny_llama, tmp_path):
    if find_spec(PACKAGES[method]) is not None:
        pytest.skip(f"{PACKAGES[method]} is installed")
    folder = copied(tiny_llama, tmp_path / "model", {"quant_method": method, "bits": 4, "load_in_4bit": True})
    with pytest.raises(MissingExtra, match=f"pip install {PACKAGES[method]}"):
        open_network(folder)


def copied(model, folder, quantization):
    import shutil

    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantization}))
    return str(folder)


@pytest.fixture
def int8(tiny_llama, tmp_path):
    """The tiny model with torchao's int8 weights."""
    from torchao.quantization import Int8WeightOnlyConfig

    model = AutoModel.from_pretrained(tiny_llama, quantization_config=TorchAoConfig(Int8WeightOnlyConfig()))
    model.save_pretrained(tmp_path / "int8")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        with open(f"{tiny_llama}/{file}", "rb") as source:
            (tmp_path / "int8" / file).write_bytes(source.read())
    return str(tmp_path / "int8")


@needs_torchao
def test_a_quantised_copy_is_another_model_that_compare_takes(int8, tiny_llama, word_texts, tmp_path):
    runs = []
    for name, model in (("original", tiny_llama), ("int8", int8)):
        runs.append(layerwise.scan(model, word_texts, metrics="fast", out=tmp_path / f"{name} run"))
    original, quantised = (run.model for run in runs)
    assert not original.same_as(quantised) and not original.quantization
    assert quantised.quantization == "torchao Int8WeightOnlyConfig"
    assert identity_from_files(ModelSpec(int8)).fingerprint == quantised.fingerprint
    # Rounded weights change every layer, and little: the embeddings are not quantised.
    one, other = (layerwise.embed(model, word_texts, layers="0,1,last") for model in (tiny_llama, int8))
    drift = {name: np.stack(one[name]) - np.stack(other[name]) for name in ("layer_0", "layer_1", "last")}
    assert not drift.pop("layer_0").any()
    for name, difference in drift.items():
        assert 0 < np.linalg.norm(difference) / np.linalg.norm(np.stack(one[name])) < 0.05
    assert len(layerwise.compare([tmp_path / "original run", tmp_path / "int8 run"]).pairs)


@needs_torchao
def test_its_weights_have_a_fingerprint_in_memory_and_a_size(int8):
    network, again = open_network(int8), open_network(int8)
    assert network.fingerprint_in_memory() == again.fingerprint_in_memory()
    weight = next(one for one in network.parameters() if hasattr(one, "__tensor_flatten__"))
    with torch.no_grad():
        getattr(weight, weight.__tensor_flatten__()[0][0]).add_(1)
    assert network.fingerprint_in_memory() != again.fingerprint_in_memory()
    info = read_model_info(ModelSpec(int8))
    assert 0 < info.quantized_bytes < 4 * info.parameters


@needs_torchao
def test_what_needs_the_original_says_so(int8, word_texts, tmp_path):
    for what, call in {
        "export": lambda: layerwise.export(int8, 1, tmp_path / "out"),
        "--stream": lambda: layerwise.scan(ModelSpec(int8, stream=True), word_texts),
    }.items():
        with pytest.raises(ModelError, match=f"quantised .*: {what} needs the original model"):
            call()

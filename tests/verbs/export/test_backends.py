"""Export backends: a format from outside is certified like the one that ships, and what it gets wrong is not kept."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import layerwise
from layerwise.core.errors import ExportError, InputError
from layerwise.models.opening import open_network
from layerwise.models.truncate import truncate_blocks
from layerwise.verbs.export import certificate
from layerwise.verbs.export.backends.backend import SavedExport
from layerwise.verbs.export.backends.catalog import BACKENDS, find_backend


@dataclass(frozen=True)
class PlainTorch:
    """The cut model, its tokenizer and the map as bare files, read by transformers and torch alone."""

    name: str = "plain_torch"
    error: float = 0.0  # what it adds to its vectors

    def check_supported(self, network, recipe, mode):
        if recipe.pooling != "mean" or recipe.tokens != "all" or recipe.norm != "raw":
            raise ExportError("plain_torch holds raw layers with pooling mean over all tokens")

    def save(self, job, folder):
        truncate_blocks(job.network.module, job.recipe.layer).save_pretrained(folder / "model")
        job.network.tokenizer.save_pretrained(folder / "model")
        linear = job.linear
        save_file({} if linear is None else {"weight": linear.weight, "bias": linear.bias}, folder / "map.safetensors")
        return SavedExport("plain_torch_loader(PATH)", blocks=job.recipe.layer)

    def load(self, folder, device):
        from transformers import AutoModel, AutoTokenizer

        model = AutoModel.from_pretrained(folder / "model").eval().to(device)
        model.norm = torch.nn.Identity()  # the layer before the final norm
        tokenizer = AutoTokenizer.from_pretrained(folder / "model")
        return Loaded(model, tokenizer, load_file(folder / "map.safetensors"), self.error)


@dataclass(frozen=True)
class Loaded:
    model: Any
    tokenizer: Any
    map: dict
    error: float

    @property
    def parameters(self):
        return sum(weight.numel() for weight in self.model.parameters())

    @torch.inference_mode()
    def encode(self, texts, batch_size=8):
        batch = self.tokenizer(list(texts), padding=True, padding_side="right", return_tensors="pt", truncation=True,
                               max_length=64, return_token_type_ids=False)  # fmt: skip
        states = self.model(**batch.to(self.model.device)).last_hidden_state
        real = batch["attention_mask"].unsqueeze(-1)
        rows = ((states * real).sum(dim=1) / real.sum(dim=1)).cpu()
        if self.map:
            rows = (rows.double() @ self.map["weight"].mT + self.map["bias"]).float()
        return rows + self.error


def test_a_backend_from_outside_needs_no_file_of_layerwise_and_is_certified(tiny_llama, word_texts, tmp_path):
    for name, options in {"bare": {}, "mapped": {"transform": "whiten", "fit": word_texts}}.items():
        out = tmp_path / name
        layerwise.export(tiny_llama, 2, out, format=PlainTorch(), max_length=64, **options)
        proof = json.loads((out / "layerwise.json").read_text())
        assert proof["backend"] == "plain_torch" and list(proof["differences"]) == ["cpu"]
        assert proof["max_difference"] <= 1e-5 * proof["largest_entry"] and proof["encoding_times"]
        card = (out / "README.md").read_text()
        assert "plain_torch_loader(PATH)" in card and "sentence" not in card.replace("sentence-similarity", "")


def test_wrong_vectors_are_refused_and_nothing_is_left_behind(tiny_llama, tmp_path):
    with pytest.raises(ExportError, match=r"differs from layer 2 \(raw\) by 1.00e-03 .* so it was not kept"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", format=PlainTorch(error=1e-3), max_length=64)
    assert not list(tmp_path.iterdir())


def test_vectors_of_another_width_are_refused(tiny_llama, tmp_path, monkeypatch):
    usual = Loaded.encode
    monkeypatch.setattr(Loaded, "encode", lambda self, texts, batch_size=8: usual(self, texts)[:, :1])
    with pytest.raises(ExportError, match=r"vectors of shape \(26, 1\) on cpu, not \(26, "):
        layerwise.export(tiny_llama, 2, tmp_path / "m", format=PlainTorch(), max_length=64)
    assert not list(tmp_path.iterdir())


def test_what_a_backend_cannot_hold_is_refused_before_anything_is_computed(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.export.fitting.part_rows", lambda *args: pytest.fail("a pass was run"))
    options = {"transform": "center", "fit": ["w1", "w2"]}
    with pytest.raises(ExportError, match="plain_torch holds raw layers"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", format=PlainTorch(), pooling="max", **options)
    with pytest.raises(InputError, match="cannot decide by norms"):
        layerwise.export(tiny_llama, 2, tmp_path / "m", tokens="no_sinks", **options)
    assert not list(tmp_path.iterdir())


def test_the_vectors_must_be_right_on_every_device(tiny_llama, tmp_path, monkeypatch):
    """No second device is at hand in tests: `cpu:0` stands for one."""
    other, cpu = torch.device("cpu:0"), torch.device("cpu")
    monkeypatch.setattr(certificate, "devices_to_test", lambda network: (other, cpu))

    @dataclass(frozen=True)
    class WrongOn(PlainTorch):
        wrong: Any = None

        def load(self, folder, device):
            found = super().load(folder, device)
            return replace(found, error=1.0) if device == self.wrong else found

    for wrong in (other, cpu):
        with pytest.raises(ExportError, match=f"on {wrong}, so it was not kept"):
            layerwise.export(tiny_llama, 2, tmp_path / "m", format=WrongOn(wrong=wrong), max_length=64)
    layerwise.export(tiny_llama, 2, tmp_path / "m", format=WrongOn(), max_length=64)
    proof = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert set(proof["differences"]) == {"cpu:0", "cpu"}
    assert proof["max_difference"] == max(proof["differences"].values())


def test_a_backend_is_chosen_by_its_name(tiny_llama, tmp_path):
    assert [backend.name for backend in BACKENDS] == ["sentence_transformers", "onnx", "openvino", "gguf"]
    assert all(find_backend(backend.name) is backend for backend in BACKENDS)
    with pytest.raises(InputError, match="format 'sentence-transformer' is not one of .*; did you mean"):
        layerwise.export("no such model", 2, tmp_path / "m", format="sentence-transformer")


def test_the_default_backend_and_one_from_outside_give_the_vectors_of_embed(tiny_llama, word_texts, tmp_path):
    network = open_network(tiny_llama)
    expected = torch.from_numpy(layerwise.embed(network, word_texts, layers="2").layer_2.to_list()[0])
    for backend in (BACKENDS[0], PlainTorch()):  # tests/verbs/export/test_formats.py has the others
        layerwise.export(network, 2, tmp_path / backend.name, format=backend, max_length=64)
        found = backend.load(tmp_path / backend.name, torch.device("cpu")).encode(word_texts[:1])
        assert torch.allclose(found[0], expected, atol=1e-6), backend.name


@pytest.mark.parametrize(("error", "device", "kept"), [(0.0, "cpu", True), (5e-5, "cpu", False), (5e-5, "cuda", True),
                                                       (1e-3, "cuda", False)])  # fmt: skip
def test_another_kind_of_device_may_differ_a_little_more(error, device, kept):
    """ExpectedVectors on a CPU, held against what a GPU would give; no GPU is at hand, so its numbers are made up."""
    vectors = torch.ones(6, 3)
    expected = certificate.ExpectedVectors(["text"] * 6, vectors, tolerance=1e-6, truncated=True)
    encoder = SimpleNamespace(encode=lambda texts: vectors[: len(texts)] + error)
    job = SimpleNamespace(network=SimpleNamespace(device=torch.device("cpu")), recipe=layerwise.Recipe(1))

    def check():
        return certificate.require_close(job, encoder, vectors + error, expected, torch.device(device))

    if kept:
        assert check() == pytest.approx(error, rel=0.01)
    else:
        with pytest.raises(ExportError, match=f"on {device}, so it was not kept"):
            check()

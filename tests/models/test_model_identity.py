"""A model is what its bytes, config and tokenizer say, loaded as asked, and left as it was found."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from families import COMMON, make_model, make_tokenizer
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import layerwise
from layerwise.core.errors import InputError, LayerwiseError, ModelError
from layerwise.core.recipe import Readout, Recipe
from layerwise.inputs.source import Example
from layerwise.models.doctor import run_checks
from layerwise.models.load import ModelSpec
from layerwise.models.opening import load_recorded_model, open_network
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.identity import ModelRef
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.export import certificate

TEXTS = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9"]


def edited(folder: str, to: Path, **config) -> str:
    """A copy of a model folder with another config.json."""
    shutil.copytree(folder, to)
    record = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(record | config))
    return str(to)


# --- the fingerprint ---


ROPE = {"rope_theta": 10.0, "rope_type": "default"}


@pytest.mark.parametrize("change", [{"rms_norm_eps": 0.1}, {"hidden_act": "relu"}, {"rope_parameters": ROPE}])
def test_another_config_is_another_model(tiny_llama, tmp_path, change):
    other = edited(tiny_llama, tmp_path / "other", **change)
    assert open_network(other).fingerprint() != open_network(tiny_llama).fingerprint()
    one, two = (np.stack(list(layerwise.embed(folder, TEXTS)["last"])) for folder in (tiny_llama, other))
    assert np.abs(one - two).max() > 1e-4  # it does give other vectors


def test_shuffled_columns_are_another_model(tiny_llama, tmp_path):
    shutil.copytree(tiny_llama, tmp_path / "other")
    weights = load_file(tmp_path / "other" / "model.safetensors")
    name = next(n for n in weights if "down_proj" in n)
    weights[name] = weights[name][:, torch.randperm(weights[name].shape[1])].contiguous()
    save_file(weights, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    assert open_network(tmp_path / "other").fingerprint() != open_network(tiny_llama).fingerprint()


def test_a_fingerprint_is_of_the_weights_as_they_are_now(tiny_llama):
    network = open_network(tiny_llama)
    before = network.fingerprint()
    assert network.fingerprint() == before == open_network(tiny_llama).fingerprint()
    with torch.no_grad():
        next(network.module.parameters())[0, 0] += 1
    assert network.fingerprint() != before


# --- the tokenizer ---


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    make_model("llama").save_pretrained(tmp_path / "bare")
    for verb in (lambda: layerwise.scan(tmp_path / "bare", TEXTS), lambda: layerwise.doctor(tmp_path / "bare")):
        with pytest.raises(ModelError, match="has no tokenizer"):
            verb()


def test_a_tokenizer_of_special_tokens_only_is_refused(tmp_path, tiny_llama):
    shutil.copytree(tiny_llama, tmp_path / "m")
    record = json.loads((tmp_path / "m" / "tokenizer.json").read_text())
    record["model"]["vocab"] = {w: i for w, i in record["model"]["vocab"].items() if i < 4}
    (tmp_path / "m" / "tokenizer.json").write_text(json.dumps(record))
    with pytest.raises(ModelError, match="every word would be unknown"):
        layerwise.scan(tmp_path / "m", TEXTS)


def test_texts_that_all_become_the_same_tokens_are_refused(tiny_llama):
    strange = [f"word{chr(97 + i)}" for i in range(20)]  # none in the vocabulary
    with pytest.raises(InputError, match="20 different texts.*same tokens"):
        layerwise.embed(tiny_llama, strange)


def test_the_owners_tokenizer_and_modes_stay_as_they_were(tiny_llama):
    module, tokenizer = AutoModel.from_pretrained(tiny_llama), make_tokenizer()
    tokenizer.padding_side, tokenizer.pad_token = "left", None
    module.train()
    module.layers[1].eval()  # as one freezes a part of a model
    modes = [part.training for part in module.modules()]
    layerwise.embed((module, tokenizer), TEXTS, layers="1,last")
    assert tokenizer.padding_side == "left" and tokenizer.pad_token is None
    assert [part.training for part in module.modules()] == modes


# --- adapters ---


def adapter(tmp_path, base, task: str | None) -> str:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type=task, init_lora_weights=False)
    get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    return str(tmp_path / "adapter")


TRAINED_ON = [(AutoModelForCausalLM, "CAUSAL_LM"), (AutoModelForCausalLM, None), (AutoModel, None)]


@pytest.mark.parametrize(("auto", "task"), [*TRAINED_ON, (AutoModel, "FEATURE_EXTRACTION")])
def test_an_adapter_is_merged_whatever_it_was_trained_on(tiny_llama, tmp_path, auto, task):
    from peft import PeftModel

    folder = adapter(tmp_path, auto.from_pretrained(tiny_llama), task)
    expected = PeftModel.from_pretrained(auto.from_pretrained(tiny_llama), folder).merge_and_unload()
    found = layerwise.embed(ModelSpec(tiny_llama, adapter=folder), TEXTS)["last"]
    wanted = layerwise.embed((expected, make_tokenizer()), TEXTS)["last"]
    plain = layerwise.embed(tiny_llama, TEXTS)["last"]
    assert np.abs(np.stack(list(found)) - np.stack(list(wanted))).max() < 1e-6
    assert np.abs(np.stack(list(found)) - np.stack(list(plain))).max() > 1e-3


def test_an_adapter_of_another_model_is_refused(tiny_llama, tmp_path):
    other = AutoModel.from_config(AutoConfig.for_model("llama", **COMMON | {"num_hidden_layers": 5}))
    folder = adapter(tmp_path, other, None)
    with pytest.raises(ModelError, match="does not match this model"):
        layerwise.embed(ModelSpec(tiny_llama, adapter=folder), TEXTS)


def test_a_pickled_adapter_is_refused(tiny_llama, tmp_path):
    folder = Path(adapter(tmp_path, AutoModel.from_pretrained(tiny_llama), None))
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match="only reads adapters in safetensors format"):
        layerwise.embed(ModelSpec(tiny_llama, adapter=str(folder)), TEXTS)


# --- one model, several threads ---


def test_two_threads_on_one_model_do_not_see_each_other(tiny_llama):
    network = open_network(tiny_llama)
    sets = [[Example(str(i), f"w{i} w{i + k} w{i + 2 * k}") for i in range(1, 30)] for k in (3, 7, 11, 13)]
    readouts = [Readout(layer) for layer in range(4)]

    def vectors(examples):
        return pooled_vectors(network, examples, readouts, max_length=8, batch_tokens=24)

    alone = [vectors(examples) for examples in sets]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for one, other in zip(alone, pool.map(vectors, sets), strict=True):
                assert all(torch.equal(one[r], other[r]) for r in readouts)


# --- what a run says of its model is what is loaded again ---


def test_a_run_leads_back_to_the_very_model(tiny_llama, tmp_path, word_texts):
    spec = ModelSpec(tiny_llama, dtype="bfloat16")
    layerwise.scan(spec, word_texts, out=tmp_path / "run", metrics="dataset_entropy")
    frame = layerwise.lab.tradeoff(tmp_path / "run", "dataset_entropy", data=word_texts, repeats=1)
    assert (frame.bytes == 2 * frame.parameters).all()  # timed in bfloat16, as it was scanned


@pytest.mark.parametrize("verb", ["lab", "tradeoff", "pick"])
def test_a_run_of_other_weights_is_refused(tiny_llama, tmp_path, word_texts, verb):
    shutil.copytree(tiny_llama, tmp_path / "model")
    layerwise.scan(tmp_path / "model", word_texts, out=tmp_path / "run", metrics="dataset_entropy")
    record = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(record | {"rms_norm_eps": 0.1}))
    with pytest.raises(LayerwiseError, match="not the model of this run"):
        if verb == "tradeoff":
            layerwise.lab.tradeoff(tmp_path / "run", "dataset_entropy", data=word_texts)
        else:
            layerwise.pick(tmp_path / "run", word_texts)


def test_a_record_never_allows_code_to_run(tiny_llama, monkeypatch):
    seen = []

    def load(spec):
        seen.append(spec)
        return open_network((AutoModel.from_pretrained(tiny_llama), make_tokenizer()))

    monkeypatch.setattr("layerwise.models.opening.load_network", load)
    record = {"name": "a/b", "fingerprint": "x", "trust_remote_code": True, "revision": "abc", "part": "encoder"}
    with pytest.raises(LayerwiseError, match="not the model"):
        load_recorded_model(ModelRef.from_record(record, "run.json"))
    assert seen == [ModelSpec("a/b", revision="abc", part="encoder")]


def test_a_saved_pick_knows_its_model(reading_llama, tiny_bert, tmp_path, word_texts):
    found = layerwise.pick(reading_llama, word_texts, layer_only=True)
    found.save(tmp_path)
    other = edited(reading_llama, tmp_path / "llama", rms_norm_eps=0.1)  # the same base name
    again = type(found).load(tmp_path)
    assert again.model.fingerprint == open_network(reading_llama).fingerprint()
    with pytest.raises(InputError, match="other weights, config or tokenizer"):
        layerwise.export(other, again, tmp_path / "out")


def test_a_folder_has_no_revisions(tiny_llama):
    with pytest.raises(InputError, match="folders have no revisions"):
        layerwise.scan(ModelSpec(tiny_llama, revision="step999"), TEXTS)


# --- several recipes, several lengths ---


def test_each_recipe_is_cut_at_its_own_length(tiny_bert, tmp_path):
    long = [" ".join(f"w{(3 * i + j * j) % 90}" for j in range(12)) for i in range(8)]
    pairs = [(long[i], long[j], (i * 5 + j * 3) % 7) for i in range(8) for j in range(i)]
    write_task(tmp_path / "root", "Mine", "STS", pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]))

    def scores(name, *recipes):
        table = layerwise.eval(tiny_bert, "all", out=tmp_path / name, data_root=tmp_path / "root", recipes=recipes)
        return [row.value for row in table]

    one, two = Recipe(2, max_length=4), Recipe(2, max_length=16, tokens="no_first")
    together = scores("both", one, two)
    assert together == scores("one", one) + scores("two", two)
    assert together[1] != scores("short", Recipe(2, max_length=4, tokens="no_first"))[0]
    with pytest.raises(InputError, match="max_length 4.*8 is asked for"):
        layerwise.eval(tiny_bert, "all", out=tmp_path / "x", data_root=tmp_path / "root", recipes=one, max_length=8)


# --- families whose final norm has a name that elsewhere means another one ---


@pytest.mark.parametrize(("family", "more"), [
    ("xglm", {"d_model": 32, "ffn_dim": 48, "num_layers": 3, "attention_heads": 4}),
    ("xlm-roberta-xl", {}),
])  # fmt: skip
def test_the_final_norm_is_found(family, more):
    torch.manual_seed(1)
    model = AutoModel.from_config(AutoConfig.for_model(family, **COMMON | more)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    network = open_network((model, make_tokenizer()))
    assert network.has_norm
    (found,) = [finding for finding in run_checks(network) if finding.subject == "final norm"]
    assert found.verdict == "ok", found


# --- an exported model is certified and timed where the model is ---


def test_an_exported_model_is_certified_on_the_models_device_and_on_the_cpu(tiny_llama):
    network = open_network(tiny_llama)
    assert [device.type for device in certificate.devices_to_test(network)] == ["cpu"]
    network.module.to("meta")  # a second device that every machine has
    assert [device.type for device in certificate.devices_to_test(network)] == ["meta", "cpu"]


# --- what kind of thing cannot be loaded, and what to type ---


def folder_with(tmp_path, **files) -> str:
    folder = tmp_path / "thing"
    folder.mkdir()
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(folder)


def test_an_adapter_folder_is_named_as_such(tmp_path):
    folder = folder_with(tmp_path, adapter_config__json={"base_model_name_or_path": "org/base"})
    with pytest.raises(ModelError, match="PEFT adapter.*scan org/base --adapter"):
        layerwise.scan(folder, TEXTS)


def test_gguf_pickles_and_single_files_are_named_as_such(tmp_path, tiny_llama):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="GGUF"):
        layerwise.scan(tmp_path / "model.gguf", TEXTS)
    folder = folder_with(tmp_path, model__gguf=b"GGUF")
    with pytest.raises(ModelError, match="no config.json, only GGUF"):
        layerwise.scan(folder, TEXTS)
    shutil.copytree(tiny_llama, tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled.*safetensors"):
        open_network(tmp_path / "pickled")


def test_a_cut_off_file_is_named_as_such(tmp_path, tiny_llama):
    shutil.copytree(tiny_llama, tmp_path / "cut")
    path = tmp_path / "cut" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelError, match="cut off or damaged"):
        open_network(tmp_path / "cut")


def test_a_mistyped_path_is_reported_with_the_nearest_folder(tiny_llama):
    wrong = tiny_llama.replace("llama", "lama")
    with pytest.raises(ModelError, match="no such folder.*did you mean .*/llama"):
        layerwise.scan(wrong, TEXTS)


@pytest.mark.parametrize("part", [None, "encoder", "decoder"])
def test_a_speech_model_does_not_read_texts_and_says_why(real_model, part):
    """The folder has no tokenizer for its decoder, and its encoder takes audio."""
    with pytest.raises(LayerwiseError, match="has no tokenizer" if part == "decoder" else "there is no file"):
        layerwise.scan(ModelSpec(real_model("whisper-tiny.en"), part=part), TEXTS)

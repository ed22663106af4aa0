"""A model is known by the hashes of its files: read once, found again, handed over, and never trusted when stale."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

import layerwise
from layerwise.core import hashes
from layerwise.core.errors import InputError, RunError
from layerwise.core.hashes import file_hash
from layerwise.models.fingerprint import file_hashes, weight_files
from layerwise.models.load import ModelSpec, load_network
from layerwise.models.opening import is_recorded_model, load_recorded_model, open_network

LONG_AGO = time.time() - 1000


@pytest.fixture
def reads(tmp_path, monkeypatch):
    """The files that were read to be hashed, with an empty cache."""
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "SECONDS_UNTIL_SETTLED", -1.0)  # the files of these tests are new
    hashes._hash_once.cache_clear()
    read, real = [], hashlib.file_digest

    def counted(file, kind):
        read.append(Path(file.name).name)
        return real(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    yield read
    hashes._hash_once.cache_clear()


@pytest.fixture
def model(tiny_llama, tmp_path):
    """A model of one's own, last changed a while ago."""
    folder = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    os.utime(folder / "model.safetensors", (LONG_AGO, LONG_AGO))
    return folder


def new_process():
    """What a process remembers is gone; what lies in the cache folder is not."""
    hashes._hash_once.cache_clear()


def test_weights_are_read_once_and_found_again_by_another_process(model, reads):
    first = open_network(model).fingerprint()
    new_process()
    assert open_network(model).fingerprint() == first and first.startswith("files-")
    assert reads == ["model.safetensors"]


def test_a_changed_file_is_another_model_even_if_the_old_one_is_in_the_cache(model, reads):
    first = open_network(model).fingerprint()
    weights = load_file(model / "model.safetensors")
    name = next(iter(weights))
    weights[name] += 1
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    new_process()
    assert open_network(model).fingerprint() != first
    assert len(reads) == 2


def test_a_file_that_was_just_written_is_not_remembered(model, reads, monkeypatch):
    """A second change within the clock's grain would leave size and time as they are."""
    monkeypatch.setattr(hashes, "SECONDS_UNTIL_SETTLED", 60.0)
    os.utime(model / "model.safetensors")
    open_network(model)
    new_process()
    open_network(model)
    assert len(reads) == 2


def test_a_damaged_entry_of_the_cache_is_computed_again(model, reads, tmp_path):
    first = open_network(model).fingerprint()
    (entry,) = (tmp_path / "cache" / "hashes").iterdir()
    entry.write_text("nonsense")
    new_process()
    assert open_network(model).fingerprint() == first and len(reads) == 2


def test_a_cache_that_cannot_be_written_only_costs_time(model, reads, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "file" / "below"))
    assert open_network(model).fingerprint().startswith("files-") and len(reads) == 1


def test_workers_take_the_hashes_that_the_driver_found(model, reads):
    known = file_hashes(str(model), None, None)
    assert len(reads) == 1
    new_process()
    shutil.rmtree(hashes.cache_folder())  # a node with a disk of its own
    there = load_network(ModelSpec(str(model)), known)
    assert len(reads) == 1 and there.fingerprint() == open_network(model).fingerprint()


def test_hashes_that_were_handed_over_do_not_count_for_a_file_that_changed(model, reads):
    known = file_hashes(str(model), None, None)
    os.utime(model / "model.safetensors", (LONG_AGO + 5, LONG_AGO + 5))
    new_process()
    load_network(ModelSpec(str(model)), known)
    assert len(reads) == 2


@pytest.mark.parametrize("cache", ["anywhere", "hub/models--org--name"])
def test_a_file_that_is_named_after_a_hash_is_known_by_its_content(cache, tmp_path, reads):
    blob = tmp_path / cache / "blobs" / hashlib.sha256(b"weights").hexdigest()
    link = tmp_path / cache / "snapshots" / "abc" / "model.safetensors"
    for path in (blob, link):
        path.parent.mkdir(parents=True)
    blob.write_bytes(b"weights")
    os.utime(blob, (LONG_AGO, LONG_AGO))
    link.symlink_to(blob)
    assert file_hash(link) == blob.name == file_hash(link) and len(reads) == 1
    blob.write_bytes(b"changed")
    assert file_hash(link) == hashlib.sha256(b"changed").hexdigest()


def test_every_piece_of_a_sharded_model_counts(model, tmp_path, reads):
    module = AutoModel.from_pretrained(model)
    module.save_pretrained(tmp_path / "pieces", max_shard_size="10KB")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "pieces")
    pieces = [path for _, path in weight_files(str(tmp_path / "pieces"), None, None)]
    assert len(pieces) > 2 and all(path.is_file() for path in pieces)
    first = open_network(tmp_path / "pieces").fingerprint()
    weights = load_file(pieces[-1])
    name = next(iter(weights))
    weights[name] += 1
    save_file(weights, pieces[-1], metadata={"format": "pt"})
    assert open_network(tmp_path / "pieces").fingerprint() != first


def test_the_type_that_weights_are_loaded_in_is_part_of_the_model(model):
    prints = {load_network(ModelSpec(str(model), dtype=dtype)).fingerprint() for dtype in ("float32", "bfloat16")}
    assert len(prints) == 2


def objects(model):
    return AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)


def test_a_model_from_files_is_known_as_the_object_that_a_run_was_made_with(model, word_texts):
    given = (str(model), objects(model))
    by_name, by_object = (layerwise.scan(one, word_texts, metrics="curvature") for one in given)
    assert by_name.model.fingerprint.startswith("files-") and by_object.model.fingerprint.startswith("memory-")
    assert all(is_recorded_model(open_network(given), by_object.model) for given in (model, objects(model)))
    changed = objects(model)
    next(changed[0].parameters()).data += 1
    assert not is_recorded_model(open_network(changed), by_object.model)
    with pytest.raises(InputError, match="not the model"):
        load_recorded_model(by_object.model, changed)
    with pytest.raises(InputError, match="pass the model's folder or hub id"):  # nothing is loaded beside it to compare
        load_recorded_model(by_name.model, objects(model))


def test_weights_that_are_changed_after_loading_are_no_longer_those_of_the_files(model):
    network = open_network(model)
    before = network.fingerprint()
    next(network.module.parameters()).data.add_(1)
    next(network.module.parameters()).requires_grad_(False).add_(0)  # counted by torch
    assert network.fingerprint() != before and network.fingerprint().startswith("memory-")


def test_other_weights_of_the_same_size_and_time_are_noticed(model, reads):
    """As where every file bears the time 0: reproducible archives, or copies that keep the time."""
    os.utime(model / "model.safetensors", (1, 1))
    first = open_network(model).fingerprint()
    weights = load_file(model / "model.safetensors")
    save_file({name: w + 1 for name, w in weights.items()}, model / "other.safetensors", metadata={"format": "pt"})
    os.replace(model / "other.safetensors", model / "model.safetensors")
    os.utime(model / "model.safetensors", (1, 1))
    new_process()
    assert open_network(model).fingerprint() != first


def edit_json(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_single_file_beside_pieces_is_the_one_that_counts(model, tmp_path):
    module = AutoModel.from_pretrained(model)
    module.save_pretrained(tmp_path / "pieces", max_shard_size="10KB")
    for path in (tmp_path / "pieces").iterdir():
        if path.name not in ("config.json",):
            shutil.copy(path, model)
    first = open_network(model)
    weights = load_file(model / "model.safetensors")
    save_file({name: w + 1 for name, w in weights.items()}, model / "model.safetensors", metadata={"format": "pt"})
    second = open_network(model)
    assert first.fingerprint_in_memory() != second.fingerprint_in_memory(), "transformers takes the single file"
    assert first.fingerprint() != second.fingerprint()


def test_the_side_on_which_texts_are_cut_is_part_of_the_model(model):
    first = open_network(model).fingerprint()
    edit_json(model / "tokenizer_config.json", truncation_side="left")
    assert open_network(model).fingerprint() != first


def test_an_adapters_scale_is_part_of_the_model(model, tmp_path):
    from peft import LoraConfig, get_peft_model

    base = AutoModel.from_pretrained(model)
    get_peft_model(base, LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    spec = ModelSpec(str(model), adapter=str(tmp_path / "adapter"))
    first = load_network(spec).fingerprint()
    edit_json(tmp_path / "adapter" / "adapter_config.json", lora_alpha=64)
    assert load_network(spec).fingerprint() != first


def test_objects_that_compute_something_else_are_other_models(model):
    module, tokenizer = objects(model)
    first = open_network((module, tokenizer)).fingerprint()
    module.rotary_emb.inv_freq.mul_(0.5)  # a buffer that is not saved
    second = open_network((module, tokenizer)).fingerprint()
    handle = module.layers[0].register_forward_hook(lambda *args: None)
    third = open_network((module, tokenizer)).fingerprint()
    handle.remove()
    assert len({first, second, third}) == 3 and open_network((module, tokenizer)).fingerprint() == second


def test_a_campaign_notices_that_a_models_files_have_changed(model, tmp_path, word_texts):
    (tmp_path / "t.txt").write_text("\n".join(word_texts[:9]))
    record = {"out": str(tmp_path / "out"), "models": [str(model)], "data": {"d": {"data": str(tmp_path / "t.txt")}},
            "settings": {"s": {"metrics": "curvature"}}}  # fmt: skip
    (tmp_path / "c.yaml").write_text(json.dumps(record))
    layerwise.campaign(tmp_path / "c.yaml")
    layerwise.campaign(tmp_path / "c.yaml")
    weights = load_file(model / "model.safetensors")
    save_file({name: w + 1 for name, w in weights.items()}, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunError, match="have changed since"):
        layerwise.campaign(tmp_path / "c.yaml")

"""--stream: blocks are read from disk one by one, and the numbers are those of an ordinary pass to the bit."""

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from families import COMMON, DEPTH, FAMILIES, KV, WIDTH, make_config, make_model, make_tokenizer, save_byte_model
from transformers import AutoConfig, AutoModel

import layerwise
from layerwise.core.errors import InputError, ModelError, TooLarge
from layerwise.core.mapped_tensors import places_in
from layerwise.inputs.text import demo_texts
from layerwise.models import kept_states, streamed
from layerwise.models.families.catalog import STREAMED_TYPES
from layerwise.models.kept_states import KeptStates
from layerwise.models.opening import open_network
from layerwise.models.spec import ModelSpec
from layerwise.verbs.scan.api import timed_plan
from layerwise.verbs.scan.options import ScanOptions

# Families of the list that tests/families.py does not have.
MORE = {
    "bloom": {"n_layer": DEPTH, "n_head": 4},
    "camembert": {},
    "cohere": KV,
    "exaone4": KV | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "gemma": KV | {"head_dim": 8},
    "gemma2": KV | {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "glm4": KV | {"head_dim": 8},
    "gpt_bigcode": {"n_embd": WIDTH, "n_layer": DEPTH, "n_head": 4, "n_positions": 64},
    "granite": KV,
    "mpt": {"d_model": WIDTH, "n_layers": DEPTH, "n_heads": 4, "max_seq_len": 64},
    "olmo": KV,
    "olmo2": KV,
    "phi3": KV,
    "smollm3": KV,
    "stablelm": KV,
    "starcoder2": KV,
    "xglm": {"d_model": WIDTH, "num_layers": DEPTH, "attention_heads": 4, "ffn_dim": 48},
    "xlm-roberta": {},
}
WITH_LAYERS_OF_OTHER_KINDS = {"gemma3_text", "modernbert", "gemma2", "llama"}


def save(folder, family):
    if family == "qwen2":  # transformers takes its own tokenizer, which reads bytes
        save_byte_model(folder, DEPTH)
        AutoModel.from_config(AutoConfig.for_model(family, **(COMMON | KV | {"vocab_size": 300}))).save_pretrained(
            folder
        )
        return str(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **(COMMON | MORE[family])) if family in MORE else make_config(family)
    model = AutoModel.from_config(config) if family in MORE else make_model(family)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return str(folder)


def both(model, texts, **options):
    """The same scan, ordinary and streamed, on one thread."""
    return [
        layerwise.scan(ModelSpec(model, stream=stream), texts, threads=1, **options).to_pandas()
        for stream in (False, True)
    ]


@pytest.mark.parametrize("family", sorted(STREAMED_TYPES))
def test_a_streamed_scan_has_the_bits_of_an_ordinary_one(family, tmp_path, word_texts):
    ordinary, streamed_one = both(save(tmp_path / "model", family), word_texts, metrics="fast", batch_tokens=256)
    assert ordinary.equals(streamed_one)


def test_every_streamed_family_is_tested_here():
    assert STREAMED_TYPES <= MORE.keys() | FAMILIES.keys()


@pytest.mark.parametrize("family", ["mixtral", "albert", "t5"])
def test_other_families_are_refused_by_name(family, tmp_path):
    with pytest.raises(ModelError, match=f"cannot read {family} models"):
        open_network(ModelSpec(save(tmp_path / "model", family), stream=True), states_only=True)


@pytest.mark.parametrize("family", sorted(WITH_LAYERS_OF_OTHER_KINDS))
def test_views_and_points_inside_blocks_and_lower_precision_have_the_same_bits(family, tmp_path, word_texts):
    model = save(tmp_path / "model", family)
    for options in ({"metrics": "all"}, {"metrics": "prompt_entropy", "inside": True}):
        ordinary, streamed_one = both(model, word_texts[:12], **options)
        assert ordinary.equals(streamed_one)
    lower = [
        layerwise.scan(ModelSpec(model, dtype="bfloat16", stream=stream), word_texts, threads=1).to_pandas()
        for stream in (False, True)
    ]
    assert lower[0].equals(lower[1])


@pytest.mark.parametrize("layers", ["0", "1", "0,2", "last"])
def test_only_the_blocks_that_are_needed_are_read(layers, tiny_llama, word_texts, monkeypatch):
    read = []
    original = streamed.StreamedNetwork.loaded
    monkeypatch.setattr(
        streamed.StreamedNetwork, "loaded", lambda network, number: read.append(number) or original(network, number)
    )
    ordinary, streamed_one = both(tiny_llama, word_texts, layers=layers)
    assert ordinary.equals(streamed_one)
    assert read == list(range(1, {"0": 0, "1": 1, "0,2": 2, "last": DEPTH}[layers] + 1))


def test_batches_go_in_rounds_where_their_states_do_not_fit(tiny_llama, word_texts, monkeypatch):
    """Each round reads the blocks again; half of the states lie in files."""
    monkeypatch.setattr(streamed, "IN_MEMORY", 4000)
    monkeypatch.setattr(streamed, "ON_DISK", 4000)
    monkeypatch.setattr(KeptStates.__init__, "__defaults__", (4000,))
    rounds = []
    original = streamed.StreamedNetwork.read_batches
    monkeypatch.setattr(
        streamed.StreamedNetwork,
        "read_batches",
        lambda network, batches, *args, **options: (
            rounds.append(len(batches)) or original(network, batches, *args, **options)
        ),
    )
    ordinary, streamed_one = both(tiny_llama, word_texts, batch_tokens=32)
    assert ordinary.equals(streamed_one)
    assert len(rounds) > 2 and max(rounds) > 1


def test_kept_states_lie_in_memory_up_to_a_bound_and_then_in_files_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files, original = [], kept_states.scratch
    monkeypatch.setattr(kept_states, "scratch", lambda size: files.append(size) or original(size))
    states = [torch.randn(2, 3, 4).to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float32)]
    kept = KeptStates(states[0].nbytes)
    for place, hidden in enumerate(states):
        kept.put(place, hidden)
    kept.put(1, states[1] + 1)
    assert files == [states[1].nbytes, states[2].nbytes] and not list(tmp_path.iterdir())
    taken = kept.take(1)
    assert torch.equal(taken, states[1] + 1) and taken.dtype == torch.bfloat16
    taken += 1  # a block may change what it is given
    assert torch.equal(kept.take(1), states[1] + 1) and torch.equal(kept.take(2), states[2])


def test_memory_holds_one_block(tiny_llama, word_texts):
    """Between blocks, and before and after a pass, all their weights are on the meta device."""
    network = open_network(ModelSpec(tiny_llama, stream=True), states_only=True)

    def blocks_in_memory():
        return [not any(w.is_meta for w in block.parameters()) for block in network.structure.blocks]

    assert not any(blocks_in_memory())
    seen = []
    inputs = dict(network.tokenizer(word_texts[:2], return_tensors="pt", padding=True))
    network.read_layers(inputs, [1, 2], lambda number, hidden: seen.append(blocks_in_memory()))
    assert seen == [[True, False, False], [False, True, False]] and not any(blocks_in_memory())


def test_embed_reads_streamed_models(tiny_bert, tiny_llama, word_texts):
    for model in (tiny_bert, tiny_llama):
        ordinary, streamed_one = (
            layerwise.embed(ModelSpec(model, stream=stream), word_texts, layers="1,last") for stream in (False, True)
        )
        assert ordinary.equals(streamed_one)


def test_pick_gets_the_same_probes_from_a_streamed_model(tmp_path):
    model = save_byte_model(tmp_path / "model", DEPTH)
    ordinary, streamed_one = (
        layerwise.pick(ModelSpec(model, stream=stream), max_length=32, templates=[]) for stream in (False, True)
    )
    assert (ordinary.recipe, ordinary.gain) == (streamed_one.recipe, streamed_one.gain)
    for one, other in zip(ordinary.layers, streamed_one.layers, strict=True):
        assert replace(one, relative_time=None) == replace(other, relative_time=None, unsteady_time=one.unsteady_time)


def test_weights_that_do_not_fit_the_config_are_refused(tiny_llama, tmp_path):
    shutil.copytree(tiny_llama, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"intermediate_size": 50}))
    with pytest.raises(ModelError, match="do not fit its config.json: size mismatch for"):
        layerwise.scan(ModelSpec(str(tmp_path / "model"), stream=True), ["w1 w2", "w3 w4 w5"])


def test_what_needs_the_whole_model_refuses(tiny_bert, word_texts, tmp_path):
    spec = ModelSpec(tiny_bert, stream=True)
    with pytest.raises(InputError, match="--stream is for verbs that read hidden states alone"):
        layerwise.export(spec, 1, tmp_path / "out")
    with pytest.raises(InputError, match="cannot be exported by pick"):
        layerwise.pick(spec, export=tmp_path / "out")
    for field, value in (("adapter", "somewhere"), ("device_map", "auto")):
        with pytest.raises(InputError, match="it cannot be used with"):
            open_network(ModelSpec(tiny_bert, stream=True, **{field: value}), states_only=True)
    assert not (tmp_path / "out").exists()


def test_a_batch_that_does_not_fit_is_not_halved(tiny_llama, word_texts, monkeypatch):
    def fail(*args, **options):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(streamed.StreamedNetwork, "read_batches", fail)
    with pytest.raises(TooLarge, match="try a smaller --batch-tokens"):
        layerwise.scan(ModelSpec(tiny_llama, stream=True), word_texts)


def test_a_weight_file_that_lies_about_its_tensors_is_refused(tiny_llama, tmp_path):
    """Its header is read by us: offsets must lie in the file and fit the shapes."""
    path = tmp_path / "model.safetensors"
    shutil.copy(f"{tiny_llama}/model.safetensors", path)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = next(one for one in header if one != "__metadata__")

    def written(changed):
        text = json.dumps(header | {name: header[name] | changed}).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        return path

    assert name in places_in(written({}))
    end = len(data) - 8 - length
    for changed in (
        {"data_offsets": [end, 2 * end]}, {"data_offsets": [-8, 0]}, {"data_offsets": "no"}, {"shape": [10**9]},
        {"shape": [-1]}, {"dtype": "F4"}, {"dtype": 7},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            places_in(written(changed))
    for wrong in (b"", b"\xff" * 8, (2**40).to_bytes(8, "little") + b"{}", data[: 8 + length // 2], data[:-4]):
        path.write_bytes(wrong)
        with pytest.raises(ValueError):
            places_in(path)


KILLED = """
import os, signal, sys
from layerwise.models.spec import ModelSpec
from layerwise.verbs.scan.api import timed_plan
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan import execute, worker
import layerwise

execute.SECONDS_BETWEEN_CHECKPOINTS = 0
passes, run_pass = [], worker.run_pass

def stop_in_the_third(*args, **options):
    passes.append(args)
    if len(passes) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_pass(*args, **options)

worker.run_pass = stop_in_the_third
texts = open(sys.argv[3]).read().splitlines()
layerwise.scan(ModelSpec(sys.argv[1], stream=sys.argv[2] == "True"), texts, out=sys.argv[4], shard_size=4, threads=1)
"""


@pytest.mark.parametrize("stream", [True, False])
def test_a_killed_run_goes_on_the_other_way_with_the_same_bits(stream, tiny_llama, word_texts, tmp_path):
    goes_on(tiny_llama, word_texts[:16], stream, tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_real_models_have_the_same_bits_also_after_a_kill(name, real_model, tmp_path):
    goes_on(str(real_model(name)), demo_texts()[:10], True, tmp_path)


def goes_on(model, texts, stream, tmp_path):
    """Kills a scan in its third shard, goes on the other way, and compares with both uninterrupted ways."""
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    out = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, model, str(stream), tmp_path / "texts.txt", out], capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    options = {"shard_size": 4, "threads": 1}
    resumed = layerwise.scan(ModelSpec(model, stream=not stream), texts, out=out, **options).to_pandas()
    for whole in both(model, texts, shard_size=4):
        assert whole.equals(resumed)


def test_the_forecast_counts_one_block_and_how_often_weights_are_read(tiny_llama, word_texts, monkeypatch):
    options = {"shard_size": 10, "metrics": "fast"}
    whole = layerwise.plan(tiny_llama, word_texts, **options)
    streamed_one = layerwise.plan(ModelSpec(tiny_llama, stream=True), word_texts, **options)
    network = open_network(tiny_llama)
    block = sum(weight.numel() for weight in network.structure.blocks[0].parameters()) * 4
    assert whole.weight_bytes - streamed_one.weight_bytes == (DEPTH - 1) * block
    assert (streamed_one.streaming.reads, streamed_one.streaming.block_bytes) == (5, DEPTH * block)
    assert "read 5 times" in "\n".join(streamed_one.lines())
    monkeypatch.setattr("layerwise.verbs.scan.forecast.psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(TooLarge, match="--stream"):
        layerwise.plan(tiny_llama, word_texts, **options).require_fit()
    with pytest.raises(TooLarge) as error:
        layerwise.plan(ModelSpec(tiny_llama, stream=True), word_texts, **options).require_fit()
    assert "--stream" not in str(error.value)


def test_the_time_of_a_streamed_scan_is_predicted(tiny_llama, word_texts):
    spec = ModelSpec(tiny_llama, stream=True)
    assert timed_plan(ScanOptions(spec, word_texts, batch_tokens=64)).total > 0


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is enforced by Linux")
def test_a_model_that_is_larger_than_its_memory_is_scanned(tmp_path):
    """Twelve blocks of 4 MB and a limit that leaves room for half of them: whole it does not fit, streamed it does."""
    model = tmp_path / "model"
    config = AutoConfig.for_model(
        "llama", **(COMMON | KV | {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 48})
    )
    AutoModel.from_config(config).double().save_pretrained(model)
    make_tokenizer().save_pretrained(model)
    script = """
import resource, sys, re
import layerwise
from layerwise.models.spec import ModelSpec
from layerwise.verbs.scan.api import timed_plan
from layerwise.verbs.scan.options import ScanOptions
spec = ModelSpec(sys.argv[1], stream=sys.argv[2] == "True")
texts = [" ".join(f"w{i * j % 89}" for i in range(2, 12)) for j in range(1, 9)]
layerwise.scan(ModelSpec(sys.argv[3]), texts, threads=1)  # everything is imported now
used = int(re.search(r"VmData:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + 120 * 2**20,) * 2)
layerwise.scan(spec, texts, layers="last", threads=1)
"""
    save(tmp_path / "small", "llama")
    ended = [
        subprocess.run([sys.executable, "-c", script, model, str(stream), tmp_path / "small"], capture_output=True)
        for stream in (True, False)
    ]
    assert ended[0].returncode == 0, ended[0].stderr.decode()[-2000:]
    assert ended[1].returncode != 0

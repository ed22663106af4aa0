"""A model that cannot be loaded: the message names the kind of thing and what to type, at once and without retries."""

import json
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from families import make_model, make_tokenizer
from huggingface_hub import constants
from transformers import AutoModel, PretrainedConfig, ViTConfig, ViTModel, WhisperConfig, WhisperModel

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, ModelError
from layerwise.core.hub import Answer, ask_hub, asked_once, offline, read_offline
from layerwise.inputs import media, text
from layerwise.models import load
from layerwise.models import load as devices
from layerwise.models.explain import explain_load_error
from layerwise.models.load import ModelSpec, load_network, load_tokenizer, read_model_info

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TINY_SPEECH = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2,
               "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 53,
               "num_mel_bins": 8, "max_source_positions": 16, "pad_token_id": 0, "bos_token_id": 1,
               "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """A hub whose repositories are refused in every way that the real one knows."""

    answers = {
        "/org/gated/": (403, "GatedRepo"),
        "/org/absent/": (401, "RepoNotFound"),
        "/org/revision/": (404, "RevisionNotFound"),
        "/org/no-config/": (404, "EntryNotFound"),
        "/org/forbidden/": (403, ""),
        "/org/busy/": (503, ""),
    }
    asked = []

    def do_HEAD(self):
        self.asked.append(self.path)
        status, code = next((a for path, a in self.answers.items() if self.path.startswith(path)), (200, ""))
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Points huggingface_hub at a server on this machine, and at an empty cache."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.asked = []
    point_hub(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def point_hub(monkeypatch, endpoint):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")


def message_for(name, load=load_network, **options):
    with pytest.raises(ModelError) as refused:
        load(ModelSpec(str(name), **options))
    message = str(refused.value)
    assert len(message.replace(str(name), "NAME")) < 330, "four lines of 80 columns at most"
    return message


@pytest.mark.parametrize(("name", "wanted"), [
    ("org/gated", "needs access: open {hub}/org/gated, accept its terms, then type: hf auth login"),
    ("org/absent", "{hub}/org/absent does not exist, or is private. For a private one, type: hf auth login"),
    ("org/revision", "has no revision 'v9'"),
    ("org/forbidden", "refuses access to {hub}/org/forbidden. Type: hf auth login"),
])  # fmt: skip
def test_what_the_hub_refuses_is_reported_with_what_to_type(hub, name, wanted):
    message = message_for(name, revision="v9")
    assert wanted.format(hub=hub) in message and message.startswith(f"cannot load '{name}'")
    assert len(Hub.asked) == 1, "one request, no retries"


def test_a_problem_that_may_pass_is_left_to_the_download(hub):
    assert not any(ask_hub(f"org/{name}").problem for name in ("busy", "no-config", "fine"))


def test_a_command_asks_the_hub_once_for_each_repository(hub):
    with asked_once():
        for name in ("org/fine", "org/gated", "org/fine", "org/gated"):
            assert bool(ask_hub(name).problem) == (name == "org/gated")
    assert len(Hub.asked) == 2
    ask_hub("org/fine")
    assert len(Hub.asked) == 3, "outside a command the hub may have changed"


def test_without_a_network_a_model_that_is_not_in_the_cache_is_refused_at_once(monkeypatch):
    point_hub(monkeypatch, "http://127.0.0.1:9")  # nothing listens there
    start = time.monotonic()
    message = message_for("org/some-model")
    assert time.monotonic() - start < 3
    assert "http://127.0.0.1:9 cannot be reached" in message and "pass the folder of a model" in message


def cached(monkeypatch, tmp_path, folder, name):
    """The folder as huggingface_hub would have put it into its cache."""
    repo = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, repo / "snapshots" / "abc")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_without_a_network_a_model_is_read_from_the_cache_without_waiting(monkeypatch, tmp_path, tiny_llama):
    cached(monkeypatch, tmp_path, tiny_llama, "org/tiny")
    point_hub(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda s: pytest.fail("a request was tried again"))
    assert load_network(ModelSpec("org/tiny")).depth == read_model_info(ModelSpec("org/tiny")).depth > 0
    assert not constants.HF_HUB_OFFLINE, "the setting is put back"


def test_without_a_network_the_nearest_model_in_the_cache_is_named(monkeypatch, tmp_path, tiny_llama):
    cached(monkeypatch, tmp_path, tiny_llama, "org/tiny")
    assert "did you mean org/tiny?" in message_for("org/tinny")
    assert "HF_HUB_OFFLINE is set" in message_for("org/tinny")


def test_offline_is_undone_when_the_load_fails():
    before = constants.HF_HUB_OFFLINE
    with pytest.raises(RuntimeError), offline():
        raise RuntimeError
    assert before == constants.HF_HUB_OFFLINE


def test_rows_of_a_data_set_are_read_offline_one_by_one():
    """Two readers that end in another order than they began leave the setting as it was, and so does one that stops."""

    def rows():
        for number in range(3):
            yield number, constants.HF_HUB_OFFLINE

    before = constants.HF_HUB_OFFLINE
    first, second = read_offline(rows), read_offline(rows)
    constants.HF_HUB_OFFLINE = False
    try:
        assert next(first) == next(second) == (0, True) and not constants.HF_HUB_OFFLINE
        assert list(first) == [(1, True), (2, True)] and not constants.HF_HUB_OFFLINE
        assert next(second) == (1, True)
        second.close()
        assert not constants.HF_HUB_OFFLINE
    finally:
        constants.HF_HUB_OFFLINE = before


@pytest.mark.parametrize("kind", ["texts", "images"])
def test_without_a_network_the_rows_of_a_data_set_are_read_offline(kind, monkeypatch):
    """Its files are opened when rows are read, long after the source was made."""
    found = []

    def records(*given):
        for cell in ("w1 w2", "w3"):
            found.append(constants.HF_HUB_OFFLINE)
            yield {"text": cell, "image": cell.encode()}

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for module in (text, media):
        monkeypatch.setattr(module, "require_dataset", lambda name: Answer("no network", reached=False))
        monkeypatch.setattr(module, "dataset_records", records)
    source = layerwise.texts("org/data") if kind == "texts" else layerwise.images("org/data")
    assert len(list(source)) == 2 and found == [True, True] and not constants.HF_HUB_OFFLINE


def test_a_near_folder_is_named_before_the_hub(monkeypatch, tmp_path, tiny_llama):
    shutil.copytree(tiny_llama, tmp_path / "gte-small")
    monkeypatch.chdir(tmp_path)
    assert "there is no folder gte-smal here; did you mean gte-small?" in message_for("gte-smal", load_tokenizer)
    assert f"did you mean {tmp_path}/gte-small?" in message_for(tmp_path / "gte-smal", read_model_info)


@pytest.mark.long
def test_a_hub_id_is_not_refused_for_a_near_folder(hub, monkeypatch, tmp_path):
    (tmp_path / "bert-base-cased").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not ask_hub("bert-base-uncased").problem
    assert "did you mean" not in message_of_loader("bert-base-uncased")


def message_of_loader(name):
    """Of a repository that the hub lets us read, and that holds nothing."""
    with pytest.raises(ModelError) as refused:
        load_network(ModelSpec(name))
    return str(refused.value)


@pytest.mark.parametrize("name", ["not a name!", "a--b..c", "x" * 200])
def test_a_name_that_cannot_be_a_hub_id_is_refused_without_a_request(hub, name):
    assert "it is not a hub id either" in message_for(name) and not Hub.asked


def test_the_command_refuses_a_wrong_name_before_torch_is_imported(tmp_path):
    code = (
        "import sys; from layerwise.__main__ import main; code = main(['scan', './nothing-here']);"
        "sys.exit(9 if 'torch' in sys.modules else code)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2 and "there is no such folder" in ended.stderr


def test_models_of_images_and_speech_are_named_by_what_they_take(tmp_path):
    ViTModel(ViTConfig(**TINY, image_size=8, patch_size=4)).save_pretrained(tmp_path / "vit")
    WhisperModel(WhisperConfig(**TINY_SPEECH)).save_pretrained(tmp_path / "whisper")
    message = message_for(tmp_path / "vit")
    assert "takes images, but has no preprocessor_config.json" in message and "AutoImageProcessor" in message
    message = message_for(tmp_path / "whisper", read_model_info)
    assert "takes audio, but has no preprocessor_config.json" in message and "AutoFeatureExtractor" in message


def test_converted_models_are_named_by_their_format(tmp_path):
    (tmp_path / "q4.gguf").write_bytes(b"GGUF")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"")
    for place, kind in ((tmp_path / "q4.gguf", "GGUF"), (tmp_path, "GGUF"), (tmp_path / "onnx", "ONNX")):
        message = message_for(place)
        assert kind in message and message.endswith("layerwise scan ORIGINAL")


def test_an_adapter_comes_with_the_command_that_loads_it(tmp_path):
    (tmp_path / "my adapter").mkdir()
    place = tmp_path / "my adapter" / "adapter_config.json"
    for base, word in (({"base_model_name_or_path": "org/base"}, "org/base"), ({}, "BASE")):
        place.write_text(json.dumps(base))
        assert message_for(place.parent).endswith(f"layerwise scan {word} --adapter '{place.parent}'")


def test_pickled_weights_come_with_the_lines_that_convert_them(tiny_llama, tmp_path, monkeypatch):
    import torch
    from safetensors.torch import load_file

    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(tiny_llama, tmp_path / "pickled")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    message = message_for("pickled")
    _, *lines = message.splitlines()
    exec("\n".join(lines))
    assert load_network(ModelSpec("pickled-safetensors")).depth == load_network(ModelSpec(tiny_llama)).depth


def test_the_tokenizer_that_is_missing_comes_with_the_lines_that_copy_it(tiny_llama, tmp_path):
    folder = shutil.copytree(tiny_llama, tmp_path / "bare", ignore=shutil.ignore_patterns("tokenizer*", "special*"))
    _, *lines = message_for(folder).splitlines()
    exec("\n".join(lines).replace("ORIGINAL", tiny_llama))
    assert load_network(ModelSpec(str(folder))).depth > 0


@pytest.mark.parametrize(("content", "wanted"), [
    (lambda whole: whole[:-1000], "model.safetensors is cut off: it has {there:,} of {size:,} bytes"),
    (lambda whole: whole[:40], "cut off or damaged"),
    (lambda whole: b"", "cut off or damaged"),
    (lambda whole: whole[:8] + b"?" * (len(whole) - 8), "its header cannot be read"),
    (lambda whole: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "lfs pull"),
], ids=["cut", "header", "empty", "damaged", "pointer"])  # fmt: skip
def test_damaged_weights_are_named_by_file_and_size(content, wanted, tiny_llama, tmp_path):
    folder = shutil.copytree(tiny_llama, tmp_path / "cut")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(content(whole))
    there = path.stat().st_size
    assert wanted.format(there=there, size=len(whole)) in message_for(folder)


def test_weights_without_a_config_and_a_config_without_weights_are_named(tiny_llama, tmp_path):
    folder = shutil.copytree(tiny_llama, tmp_path / "bare")
    (folder / "config.json").rename(tmp_path / "config.json")
    assert "has weights (model.safetensors) but no config.json" in message_for(folder)
    (tmp_path / "config.json").rename(folder / "config.json")
    assert f"layerwise scan {folder}" in message_for(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    assert "has no weights" in message_for(folder)


def test_a_full_disk_is_named_wherever_it_was_noticed():
    import errno

    error = OSError("could not load the file")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "the disk is full" in str(explain_load_error("org/model", None, "", error))


def test_a_model_type_that_transformers_does_not_know_asks_for_a_newer_one(tiny_llama, tmp_path):
    folder = shutil.copytree(tiny_llama, tmp_path / "new")
    (folder / "config.json").write_text(json.dumps({"model_type": "from-the-future"}))
    message = message_for(folder)
    assert "from-the-future" in message and message.endswith("pip install -U transformers")


def test_the_command_reports_a_mistyped_folder_in_one_message(tmp_path, tiny_llama, capsys):
    shutil.copytree(tiny_llama, tmp_path / "gte-small")
    assert main(["doctor", f"{tmp_path}/gte-smal"]) == 2
    assert capsys.readouterr().err.startswith(f"layerwise: cannot load '{tmp_path}/gte-smal': there is no such folder")


def with_model(words, model):
    """The words of a command with a model after its verb, which has two words in the lab."""
    length = 2 if words[0] == "lab" else 1
    return [*words[:length], model, *words[length:]]


DEVICE_VERBS = {
    "scan": [],
    "lab stress": ["--kind", "random"],
    "embed": ["--data", "demo", "--out", "vectors.parquet"],
    "export": ["--layer", "1", "--out", "small"],
    "shrink": ["--data", "demo", "--out", "small"],
    "doctor": [],
}


@pytest.mark.parametrize("verb", DEVICE_VERBS)
def test_a_device_that_is_not_there_is_refused_before_weights_are_read(verb, tiny_llama, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "accelerators", lambda: [])
    monkeypatch.setattr(load, "load_located", lambda *given: pytest.fail("loaded"))
    assert main([*with_model(verb.split(), tiny_llama), *DEVICE_VERBS[verb], "--device", "cuda"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "layerwise: cannot use device 'cuda': this machine has cpu, as far as torch can use it"


def test_devices_that_are_there_are_named(tiny_llama, monkeypatch):
    monkeypatch.setattr(devices, "accelerators", lambda: [torch.device("cuda:0"), torch.device("cuda:1")])
    assert [devices.has_device(torch.device(name)) for name in ("cpu", "cuda", "cuda:1", "cuda:2", "mps", "meta")] == [
        True, True, True, False, False, False
    ]  # fmt: skip
    assert devices.pick_device("auto") == torch.device("cuda")
    with pytest.raises(InputError, match="'cuda:2': this machine has cpu, cuda:0, cuda:1"):
        layerwise.embed(ModelSpec(tiny_llama, device="cuda:2"), ["w1"])


class OwnModule(torch.nn.Module):
    """A stack of blocks that is no transformers model."""

    def __init__(self, depth=None):
        super().__init__()
        self.embed, self.blocks = torch.nn.Embedding(200, 8), torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in "123")
        if depth is not None:
            self.config = PretrainedConfig(num_hidden_layers=depth, hidden_size=8)

    def forward(self, input_ids, attention_mask):
        hidden = self.embed(input_ids)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class WithoutMask(OwnModule):
    def forward(self, input_ids):
        return super().forward(input_ids, None)


def test_a_module_of_ones_own_works_with_what_the_message_asks_for(word_texts):
    with pytest.raises(InputError, match="OwnModule has no config") as refused:
        layerwise.scan((OwnModule(), make_tokenizer()), word_texts)
    for needed in ("PretrainedConfig(num_hidden_layers=..., hidden_size=...)", "ModuleList", "forward(input_ids, att"):
        assert needed in str(refused.value)
    table = layerwise.scan((OwnModule(3), make_tokenizer()), word_texts, metrics="curvature")
    assert [row.layer for row in table] == [0, 1, 2, 3]
    with pytest.raises(ModelError, match=r"WithoutMask.forward takes no attention_mask"):
        layerwise.scan((WithoutMask(3), make_tokenizer()), word_texts)


def test_a_model_object_without_its_tokenizer_is_told_from_what_is_no_model(word_texts, tmp_path):
    model = make_model("gpt2")
    with pytest.raises(InputError, match=r"GPT2Model .* tokenizer is not known: pass both, as a pair \(model, tok"):
        layerwise.scan(model, word_texts)
    with pytest.raises(InputError, match="a str is no torch module"):
        layerwise.scan(("gpt2", make_tokenizer()), word_texts)
    with pytest.raises(InputError, match="cannot read a list; pass a name"):
        layerwise.scan([model], word_texts)
    make_model("llama").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"has no tokenizer that can be loaded; pass both, as a pair \(model, tok"):
        layerwise.scan(AutoModel.from_pretrained(tmp_path), word_texts)


REFUSED = {
    "shrink --method static --blocks 2 --out small": "method static has no --blocks",
    "export --out small": "say what to export",
    "export --layer 1 --transform nothing --out small": "transform 'nothing'",
    "scan --state nothing": "state 'nothing'",
    "scan --cpus-per-worker 4": "without --engine ray",
    "lab stress --kind length --max-length 0": "max_length",
    "eval --tasks STSBenchmark": "eval needs --out",
    "shrink --data demo --method linear --minutes 3 --out small": "add --method distill",
}


@pytest.mark.parametrize("option", ["--cpus-per-worker 4", "--gpus-per-worker 1", "--workers 2", "--address auto"])
@pytest.mark.parametrize("verb", ["scan", "lab stress --kind random", "eval --tasks STSBenchmark --out scores"])
def test_options_of_workers_are_refused_without_ray(verb, option, tiny_llama, capsys):
    if (verb.split()[0], option.split()[0]) == ("eval", "--workers"):
        return  # it has processes without Ray, too
    assert main([*with_model(verb.split(), tiny_llama), *option.split()]) == 2
    assert f"no workers, so {option.split()[0]} would have no effect; add --engine ray" in capsys.readouterr().err


def test_options_are_refused_before_torch_is_imported(tiny_llama, tmp_path):
    """All in one process: none of them may import it."""
    commands = [with_model(words.split(), tiny_llama) for words in REFUSED]
    code = (
        "import sys; from layerwise.__main__ import main\n"
        f"for words in {commands!r}: assert main(words) == 2, words\n"
        "sys.exit(9 if 'torch' in sys.modules else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == len(REFUSED)
    for line, wanted in zip(lines, REFUSED.values(), strict=True):
        assert wanted in line


def test_layers_and_lengths_are_refused_before_weights_are_read(tiny_llama, tmp_path, monkeypatch):
    monkeypatch.setattr(load, "load_located", lambda *given: pytest.fail("loaded"))
    texts = [f"w{i} w{i + 1}" for i in range(30)]
    labelled = layerwise.texts(texts).with_labels({"label": ["ab"[i % 2] for i in range(30)]})
    for call in (
        lambda layer, longest: layerwise.embed(tiny_llama, ["w1"], layers=layer, max_length=longest),
        lambda layer, longest: layerwise.export(tiny_llama, layer, tmp_path / "small", max_length=longest),
        lambda layer, longest: layerwise.probe(tiny_llama, labelled, label="label", layers=layer, max_length=longest),
    ):
        with pytest.raises(InputError, match="layer 99 does not exist"):
            call(99, None)
        with pytest.raises(InputError, match="max_length 100000 is more than this model supports"):
            call(1, 100_000)

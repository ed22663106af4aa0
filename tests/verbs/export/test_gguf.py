"""GGUF: the file, run by llama.cpp itself with its own tokenizer, gives the vectors that were measured."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from families import COMMON, FAMILIES, make_model, make_tokenizer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

import layerwise
from layerwise.core.errors import ExportError, InputError, MissingExtra
from layerwise.inputs.text import demo_texts
from layerwise.models.families.gguf_layouts import gguf_problem, gguf_weight
from layerwise.models.load import build_network
from layerwise.verbs.export.backends.gguf import backend, vocabulary

pytest.importorskip("gguf")
xllamacpp = pytest.importorskip("xllamacpp")
SIZE, LENGTH = 331, 64
SPACE = "\u2581"
QWEN2, LLAMA3 = vocabulary.PATTERNS


def byte_level(*splitters, use_regex=False):
    raw = Tokenizer(models.BPE())
    steps = [*splitters, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)]
    raw.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    special = ["<pad>", "<s>", "</s>"]
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    raw.train_from_iterator(demo_texts(), trainers.BpeTrainer(vocab_size=SIZE, special_tokens=special, **options))
    return raw


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def sentence_piece(prefixed):
    """As sentencepiece tokenizers are in tokenizer.json: spaces are marks, unknown characters bytes."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    raw = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [normalizers.Prepend(SPACE)] if prefixed else []
    raw.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    raw.train_from_iterator(demo_texts(), trainers.BpeTrainer(vocab_size=3 * SIZE, special_tokens=special,
                                                              show_progress=False))  # fmt: skip
    record = json.loads(raw.to_str())
    record["added_tokens"] = record["added_tokens"][:3]  # bytes are tokens, but not words of a text
    raw = Tokenizer.from_str(json.dumps(record))
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return raw


def word_piece(lowercase=True):
    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.normalizer, raw.pre_tokenizer = (
        normalizers.BertNormalizer(lowercase=lowercase),
        pre_tokenizers.BertPreTokenizer(),
    )
    raw.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    raw.train_from_iterator(demo_texts(), trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=special,
                                                                    show_progress=False))  # fmt: skip
    raw.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return raw


def with_end(raw):
    raw.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return raw


TOKENIZERS = {
    "gpt-2": lambda: byte_level(use_regex=True),
    "smollm": lambda: byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "qwen2": lambda: with_end(byte_level(split(QWEN2))),
    "llama-bpe": lambda: byte_level(split(LLAMA3)),
    "prefixed pieces": lambda: sentence_piece(True),
    "pieces": lambda: sentence_piece(False),
    "word pieces": word_piece,
}
GEMMA3 = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16, "num_hidden_layers": 7, "layer_types": None}
LLAMA3_POSITIONS = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 32}  # fmt: skip
CASES = {  # family, changes of its config, tokenizer, layer, recipe
    "llama": ("llama", {"rope_parameters": LLAMA3_POSITIONS}, "prefixed pieces", 2, {"norm": "normed"}),
    "llama on bytes": ("llama", {"attention_bias": True}, "llama-bpe", 3, {"norm": "normed", "pooling": "last"}),
    "qwen2": ("qwen2", {}, "qwen2", 2, {"norm": "normed", "pooling": "last"}),
    "qwen3": ("qwen3", {}, "gpt-2", 2, {"norm": "normed", "normalize": True}),
    "gemma3": ("gemma3_text", GEMMA3, "pieces", 6, {"norm": "normed"}),
    "bert": ("bert", {}, "word pieces", 2, {"pooling": "first"}),
}


def network_of(family, changes, tokenizer):
    raw = TOKENIZERS[tokenizer]()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]"} if tokenizer == "word pieces" else {"eos_token": "</s>"}
    given = COMMON | {"vocab_size": raw.get_vocab_size() + 5} | FAMILIES[family] | changes  # some rows without a token
    torch.manual_seed(1)
    model = AutoModel.from_config(AutoConfig.for_model(family, **given)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return build_network(model, PreTrainedTokenizerFast(tokenizer_object=raw, **names), family)


def texts_of_all_lengths():
    words = " ".join(demo_texts()).split()
    return [" ".join(words[7 * i : 7 * i + 1 + i % 29]) for i in range(31)]


def run_llama_cpp(path: Path, inputs, length=LENGTH):
    """llama.cpp with the options of the model card; its answer to one request, unscaled."""
    settings = xllamacpp.CommonParams()
    settings.model.path, settings.embedding, settings.verbosity, settings.warmup = str(path), True, 0, False
    settings.n_ctx, settings.n_batch, settings.n_ubatch = length + 1, length, length
    settings.n_parallel = settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(settings)
    return server.handle_embeddings({"input": inputs, "encoding_format": "float", "embd_normalize": -1})


def vectors_of(answer):
    return np.array([item["embedding"] for item in sorted(answer["data"], key=lambda item: item["index"])])


def lowest_cosine(found, wanted):
    return ((found * wanted).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)).min()


AT_ONCE = ("llama", "gemma3", "bert")  # one of each kind of tokenizer and of block; the others are run by --full


@pytest.fixture(
    scope="module", params=[name if name in AT_ONCE else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def exported(request, tmp_path_factory):
    """A folder, and what sentence-transformers gives for the same recipe."""
    family, changes, tokenizer, layer, options = CASES[request.param]
    folder, network = tmp_path_factory.mktemp("gguf"), network_of(family, changes, tokenizer)
    options = options | {"max_length": LENGTH, "texts": demo_texts()[:12]}
    small = layerwise.export(network, layer, folder / "st", servable=True, **options)
    layerwise.export(network, layer, folder / "gguf", format="gguf", **options)
    return folder / "gguf", small, network


def test_llama_cpp_gives_the_measured_vectors(exported):
    folder, small, network = exported
    texts = [text for text in texts_of_all_lengths() if len(network.tokenizer(text)["input_ids"]) <= LENGTH]
    assert len(texts) > 11
    wanted = small.encode(texts)
    answer = run_llama_cpp(folder / "model-f16.gguf", texts)
    assert lowest_cosine(vectors_of(answer), wanted) > 0.9999
    lengths = np.linalg.norm(vectors_of(answer), axis=1) / np.linalg.norm(wanted, axis=1)
    record = json.loads((folder / "layerwise.json").read_text())
    assert record["recipe"]["normalize"] or np.abs(lengths - 1).max() < 0.01, "unscaled"
    tokens = sum(len(network.tokenizer(text)["input_ids"]) for text in texts)
    assert answer["usage"]["prompt_tokens"] == tokens


def test_the_record_has_both_files_and_the_texts_that_are_split_otherwise(exported):
    folder, _, _ = exported
    names = {path.name for path in folder.iterdir()}
    assert names == {"README.md", "layerwise.json", "model-f16.gguf", "model-q8_0.gguf", "tokenizer.json"}
    record, card = json.loads((folder / "layerwise.json").read_text()), (folder / "README.md").read_text()
    small = record["variants"]["q8_0"]
    assert 0.99 < small["min_cosine"] < 1 and small["bytes"] == (folder / small["file"]).stat().st_size
    assert record["blocks"]["after"] == record["recipe"]["layer"] and record["min_cosine"] > 0.9999
    assert record["parameters"]["after"] > 0 and "```bash\nllama-server -m PATH/model-f16.gguf --embeddings" in card
    assert f"lowest cosine {record['min_cosine']:.6f} (0.9999 was required)" in card
    otherwise = record["odd_texts"]["split_otherwise"]
    assert len(otherwise) < 6, otherwise
    assert all(repr(text) in card for text in otherwise)
    (row,) = [row for row in record["serving"] if row["program"] == "llama.cpp"]
    assert (row["vectors"], row["known"]) == ("exact", "run on this export") and str(LENGTH) in row["note"]


@pytest.mark.parametrize("name", ["smollm", "gpt-2"])
def test_digits_are_split_as_the_tokenizer_does(name, tmp_path):
    network = network_of("llama", {}, name)
    layerwise.export(
        network, 1, tmp_path / "m", norm="normed", format="gguf", max_length=LENGTH, texts=demo_texts()[:12]
    )
    text = "1234567 and 2024, " * 2
    ids = network.tokenizer(text)["input_ids"]
    by_text, by_ids = (vectors_of(run_llama_cpp(tmp_path / "m" / "model-f16.gguf", [given])) for given in (text, ids))
    assert lowest_cosine(by_text, by_ids) > 1 - 1e-6


def test_odd_texts_that_are_too_long_for_the_model_are_not_tried(tmp_path):
    options = {"norm": "normed", "format": "gguf", "max_length": 16, "texts": demo_texts()[:12]}
    layerwise.export(network_of("llama", {}, "gpt-2"), 1, tmp_path / "m", **options)
    record = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert record["odd_texts"]["texts"] < 12 and record["min_cosine"] > 0.9999


def test_a_linear_map_is_written_beside_the_file_and_said(tmp_path):
    texts, network = texts_of_all_lengths(), network_of("llama", {}, "gpt-2")
    options = {"norm": "normed", "transform": "remove_top:3", "fit": texts, "max_length": LENGTH, "texts": texts}
    wanted = layerwise.export(network, 2, tmp_path / "st", servable=True, **options).encode(texts[:9])
    model = layerwise.export(network, 2, tmp_path / "m", format="gguf", **options)
    del model
    from safetensors.numpy import load_file

    linear = load_file(tmp_path / "m" / "map.safetensors")
    found = vectors_of(run_llama_cpp(tmp_path / "m" / "model-f16.gguf", texts[:9]))
    assert lowest_cosine(found, wanted) < 0.99
    assert lowest_cosine(found @ linear["weight"].T + linear["bias"], wanted) > 0.999
    record = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    (row,) = [row for row in record["serving"] if row["program"] == "llama.cpp"]
    assert row["vectors"] == "needs a setting" and "map.safetensors" in row["note"]
    assert "The linear map is not part of the GGUF files" in (tmp_path / "m" / "README.md").read_text()


@pytest.mark.parametrize(("options", "reason"), [
    ({}, "use --norm normed"),
    ({"norm": "normed", "tokens": "no_first"}, "use --tokens all"),
    ({"norm": "normed", "template": "a {text} b"}, "does not add a template"),
    ({"norm": "normed", "template": "a {text}"}, "is not part of tokenizer.json"),
])  # fmt: skip
def test_a_recipe_that_llama_cpp_cannot_compute_is_refused_with_the_reason(options, reason, tmp_path):
    with pytest.raises(InputError, match=f"llama.cpp cannot compute this recipe: .*{reason}"):
        layerwise.export(network_of("llama", {}, "gpt-2"), 2, tmp_path / "m", format="gguf", **options)
    assert not list(tmp_path.iterdir())


def test_a_model_or_tokenizer_that_llama_cpp_does_not_have_is_refused(tmp_path):
    for family, tokenizer, reason in (
        ("gpt2", make_tokenizer(), "architecture gpt2 is not one of llama"),
        ("bert", make_tokenizer(), r"no tokenizer like this one \(WordLevel\)"),
        ("bert", PreTrainedTokenizerFast(tokenizer_object=word_piece()), "the model has 97 token embeddings"),
    ):
        with pytest.raises(ExportError, match=reason):
            layerwise.export((make_model(family), tokenizer), 2, tmp_path / "m", norm="raw", format="gguf")
    with pytest.raises(ExportError, match="lower case only"):
        vocabulary.vocabulary(PreTrainedTokenizerFast(tokenizer_object=word_piece(lowercase=False)), SIZE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("family", "changes", "reason"), [
    ("llama", {"hidden_act": "gelu"}, "computes with hidden_act silu"),
    ("qwen2", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "positions are scaled"),
    ("gemma3_text", GEMMA3 | {"query_pre_attn_scalar": 9}, "query_pre_attn_scalar 9"),
    ("gemma3_text", GEMMA3 | {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}, "sliding attention"),
    ("gemma3_text", GEMMA3 | {"use_bidirectional_attention": True}, "use_bidirectional_attention False"),
    ("bert", {"hidden_act": "relu"}, "computes with hidden_act gelu"),
])  # fmt: skip
def test_a_config_for_which_llama_cpp_would_compute_something_else_is_refused(family, changes, reason):
    assert not gguf_problem(
        AutoConfig.for_model(family, **(COMMON | FAMILIES[family] | (GEMMA3 if "gem" in family else {})))
    )
    assert reason in gguf_problem(AutoConfig.for_model(family, **(COMMON | FAMILIES[family] | changes)))


def test_a_file_with_wrong_weights_is_not_kept(tmp_path, monkeypatch):
    """Queries and keys that are not reordered give almost the right vectors."""
    monkeypatch.setattr(backend, "gguf_weight", lambda config, name, weight: weight.detach().float().contiguous())
    with pytest.raises(ExportError, match="lowest cosine 0.* below 0.9999, so it was not kept"):
        layerwise.export(network_of("llama", {}, "gpt-2"), 3, tmp_path / "m", norm="normed", format="gguf")
    assert not list(tmp_path.iterdir())


def test_reordered_queries_give_the_same_attention_scores():
    """The law behind the order of rows: rotating neighbours there is rotating halves here."""
    config, angle = AutoConfig.for_model("llama", **(COMMON | FAMILIES["llama"])), torch.rand(4)
    rows = torch.randn(32, 5)
    stored = gguf_weight(config, "layers.0.self_attn.q_proj.weight", rows).unflatten(0, (4, 4, 2))
    halves = rows.unflatten(0, (4, 2, 4))
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    ours = halves[:, 0] * cos - halves[:, 1] * sin
    theirs = stored[:, :, 0] * cos - stored[:, :, 1] * sin
    assert torch.equal(ours, theirs)


def test_a_missing_package_is_named_with_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "find_spec", lambda name: None if name == "xllamacpp" else object())
    with pytest.raises(MissingExtra, match=r"--format gguf needs xllamacpp: pip install 'layerwise\[gguf\]'"):
        layerwise.export(network_of("llama", {}, "gpt-2"), 2, tmp_path / "m", norm="normed", format="gguf")

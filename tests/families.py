"""Tiny random models of every text family that layerwise reads, and a tokenizer for them."""

import re
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.normalizers import Replace
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

from layerwise.verbs.pick.options import Language
from layerwise.verbs.pick.probes import proxy_probes

DEPTH, WIDTH, VOCABULARY = 3, 32, 97

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KV = {"num_key_value_heads": 2}

FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt_neox": {},
    "llama": KV,
    "mistral": KV | {"sliding_window": None},
    "mixtral": KV | {"num_local_experts": DEPTH, "num_experts_per_tok": 2},  # as many experts as blocks: outermost wins
    "qwen2": KV,
    "qwen3": KV | {"head_dim": 8},
    "gemma3_text": KV | {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    "phi": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": WIDTH},
    "falcon": {},
    "mamba": {"state_size": 4},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    "bert": {},
    "roberta": {},
    "distilbert": {"dim": WIDTH, "hidden_dim": 48, "n_layers": DEPTH, "n_heads": 4},
    "albert": {"embedding_size": 16},
    "deberta-v2": {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]},
    "electra": {"embedding_size": 16},
    "mpnet": {},
    "modernbert": {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 8},
    "t5": {"d_model": WIDTH, "d_ff": 48, "d_kv": 8, "num_layers": DEPTH, "num_heads": 4, "decoder_start_token_id": 0},
}


def make_config(family: str) -> Any:
    given = dict(COMMON)
    if family in ("distilbert", "t5"):  # names of their own
        given = {k: v for k, v in given.items() if k in ("vocab_size", "pad_token_id", "eos_token_id")}
    return AutoConfig.for_model(family, **(given | FAMILIES[family]))


def make_model(family: str, vocabulary: int = VOCABULARY) -> Any:
    """A model with random weights, norms and biases included: an untrained norm of ones would hide mistakes."""
    torch.manual_seed(sum(map(ord, family)))
    config = make_config(family)
    config.vocab_size = vocabulary
    model = AutoModel.from_config(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "A_log" not in name and "dt" not in name:
                weight.add_(0.05 * torch.randn_like(weight))
    return model


def make_tokenizer(more_words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    words = ["<pad>", "<s>", "</s>", "<unk>"] + [f"w{i}" for i in range(VOCABULARY - 4)] + [*more_words]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=64, **special)


def make_reader(family: str, language: Language = "en") -> tuple[Any, PreTrainedTokenizerFast]:
    """A model whose tokenizer also knows the words of pick's bundled sentences: pick refuses one that does not."""
    texts = (text for probe in proxy_probes(language=language) for text in probe.texts)
    words = sorted({word for text in texts for word in re.findall(r"\w+|[^\w\s]+", text)})
    return make_model(family, VOCABULARY + len(words)), make_tokenizer(words)


def make_byte_tokenizer(length: int = 64) -> PreTrainedTokenizerFast:
    """It reads bytes, so that any two texts differ."""
    symbols = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    raw = Tokenizer(models.BPE({symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=length, **special)


def save_byte_model(folder: Any, depth: int, length: int = 64, family: str = "llama") -> str:
    """A folder with a random model, a language model or an encoder, that reads bytes."""
    torch.manual_seed(0)
    tokenizer = make_byte_tokenizer(length)
    tokenizer.save_pretrained(folder)
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=depth, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=length, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    kind = AutoModelForCausalLM if family == "llama" else AutoModel
    kind.from_config(config).save_pretrained(folder)
    return str(folder)


def adding_tokenizer():
    """It puts <s> before and </s> after every text; a text of x alone has no tokens of its own."""
    tokenizer = make_tokenizer()
    tokenizer.backend_tokenizer.normalizer = Replace("x", "")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer

"""The families that are written for llama.cpp as GGUF, and how their weights and configs are stored there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from layerwise.models.families.family import has_values

WORD_PIECES, BYTES, PIECES = "bert", "gpt2", "llama"  # llama.cpp's names of its kinds of tokenizer
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
PATTERNS = {ENDINGS + WORDS % "": "qwen2", ENDINGS + WORDS % "{1,3}": "llama-bpe"}  # its names of ways to split a text
PERIOD = 6  # llama.cpp: each sixth block of Gemma 3 reads all tokens, the others a window


@dataclass(frozen=True)
class GgufLayout:
    """How a family is stored."""

    types: tuple[str, ...]  # values of `model_type` in a config
    architecture: str  # llama.cpp's name
    prefix: str = "model."  # before the names of weights, as the tables of the gguf package have them
    kind: Literal["decoder", "encoder"] = "decoder"
    pairs_rotary: bool = False  # rows of queries and keys that are rotated together are neighbours
    adds_one_to_norms: bool = False  # norms are stored with their gain, 1 + weight
    condition: Mapping[str, object] = field(default_factory=dict)  # what llama.cpp computes, whatever the config says


GGUF_LAYOUTS = (
    GgufLayout(("llama",), "llama", pairs_rotary=True, condition={"hidden_act": "silu"}),
    GgufLayout(("qwen2",), "qwen2", condition={"hidden_act": "silu", "use_sliding_window": False}),
    GgufLayout(("qwen3",), "qwen3", condition={"hidden_act": "silu", "use_sliding_window": False}),
    GgufLayout(
        ("gemma3_text",),
        "gemma3",
        adds_one_to_norms=True,
        condition={
            "use_bidirectional_attention": False,
            "hidden_activation": "gelu_pytorch_tanh",
            "attn_logit_softcapping": None,
        },
    ),
    GgufLayout(
        ("bert",),
        "bert",
        prefix="",
        kind="encoder",
        condition={"hidden_act": "gelu", "is_decoder": False, "position_embedding_type": "absolute"},
    ),
)


def gguf_layout(config: Any) -> GgufLayout | None:
    """The layout of a model's family; None if it is not written."""
    return next((layout for layout in GGUF_LAYOUTS if config.model_type in layout.types), None)


def gguf_problem(config: Any) -> str:
    """Why a model cannot be written for llama.cpp; "" if it can."""
    layout = gguf_layout(config)
    if layout is None:
        types = ", ".join(name for layout in GGUF_LAYOUTS for name in layout.types)
        return f"the architecture {config.model_type} is not one of {types}"
    for name, value in layout.condition.items():
        if not has_values(config, {name: value}):
            return f"llama.cpp computes with {name} {value}, and this model has {getattr(config, name)}"
    if layout.architecture == "gemma3":
        return gemma3_problem(config)
    scaling = "" if layout.kind == "encoder" else config.rope_parameters.get("rope_type", "default")
    if scaling not in ("", "default", *(("linear", "llama3") if layout.architecture == "llama" else ())):
        return f"its positions are scaled ({scaling}), which is not written"
    return ""


def gemma3_problem(config: Any) -> str:
    """What else llama.cpp takes for granted in Gemma 3."""
    if any(part.get("rope_type", "default") != "default" for part in config.rope_parameters.values()):
        return "its positions are scaled, which is not written"
    if config.query_pre_attn_scalar != config.head_dim:
        return f"llama.cpp scales attention by head_dim, not by query_pre_attn_scalar {config.query_pre_attn_scalar}"
    windows = [(i + 1) % PERIOD != 0 for i in range(config.num_hidden_layers)]
    if [kind == "sliding_attention" for kind in config.layer_types] != windows:
        return "its blocks with sliding attention are not where llama.cpp has them"
    return ""


def gguf_numbers(config: Any, max_length: int) -> dict[str, Any]:
    """The numbers of a config that GGUF stores, by the names of the writer's methods without `add_`.

    A decoder gets room for one token more than the longest input, which llama.cpp wants; rotary positions have no end.
    """
    layout, heads = gguf_layout(config), config.num_attention_heads
    assert layout is not None, "gguf_problem says so"
    numbers: dict[str, Any] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": heads,
    }
    if layout.kind == "encoder":
        return numbers | {
            "layer_norm_eps": config.layer_norm_eps,
            "causal_attention": False,
            "token_type_count": config.type_vocab_size,
        }
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    rotary = config.rope_parameters
    numbers |= {
        "context_length": max(config.max_position_embeddings, max_length + 1),
        "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": config.rms_norm_eps,
        "rope_freq_base": rotary.get("full_attention", rotary)["rope_theta"],
        "rope_dimension_count": head,
        "key_length": head,
        "value_length": head,
    }
    if layout.architecture == "gemma3":
        numbers |= {
            "sliding_window": config.sliding_window,
            "rope_freq_base_swa": rotary["sliding_attention"]["rope_theta"],
        }
    return numbers


def gguf_weight(config: Any, name: str, weight: Tensor) -> Tensor:
    """A weight as llama.cpp stores it, in float32 on the CPU."""
    layout, weight = gguf_layout(config), weight.detach().float().cpu()
    assert layout is not None, "gguf_problem says so"
    if layout.adds_one_to_norms and name.endswith("norm.weight"):
        return weight + 1
    if layout.pairs_rotary and (".q_proj." in name or ".k_proj." in name):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        size = weight.shape[0] // heads
        halves = weight.reshape(heads, 2, size // 2, *weight.shape[1:])  # row i of a head is rotated with row i + half
        return halves.transpose(1, 2).reshape(weight.shape).contiguous()
    return weight.contiguous()


def rotary_factors(module: Any) -> Tensor | None:
    """What llama.cpp divides the frequencies of rotary positions by; None without scaling."""
    rotary = getattr(module.config, "rope_parameters", None) or {}
    if rotary.get("rope_type", "default") == "default":
        return None
    found: Tensor = module.rotary_emb.inv_freq.float().cpu()
    places = torch.arange(len(found)) / len(found)
    return torch.pow(float(rotary["rope_theta"]), -places) / found

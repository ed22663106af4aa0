"""Modules of sentence-transformers, made from a transformers model and from the weights of a linear map; and a network
as a whole SentenceTransformer."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.outputs import scratch_folder
from layerwise.core.quiet import quiet_libraries
from layerwise.models.network import Network
from layerwise.models.truncate import truncate_blocks


def transformer_module(
    model: Any, tokenizer: Any, max_length: int | None, scratch: Path | None = None, **reading: Any
) -> Any:
    """The model and its tokenizer, or image processor, as a Transformer module. `reading` says which output it gives.

    The module is made from files, which are written to a temporary folder in `scratch`.
    """
    from sentence_transformers.sentence_transformer.modules import Transformer

    with scratch_folder("cut", scratch) as folder:
        model.save_pretrained(folder)
        tokenizer = copy.deepcopy(tokenizer)
        if getattr(tokenizer, "chat_template", None):
            tokenizer.chat_template = None  # sentence-transformers would wrap every text in it
        tokenizer.save_pretrained(folder)
        return Transformer(str(folder), **({"max_seq_length": max_length} if max_length else {}), **reading)


def as_sentence_transformer(network: Network, max_length: int) -> Any:
    """A text model as plain sentence-transformers runs it: as shipped, or with mean pooling and no chat template.

    It shares the weights of the network, and is in its mode. One that must encode texts itself is loaded again.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    head = network.head
    if head is not None and head.shipped.own_encode_reason:
        return head.sentence_transformer()
    modules = head.modules if head is not None else (Pooling(network.width, "mean"),)
    settings: dict[str, Any] = {}
    if head is not None:
        settings = {"prompts": dict(head.shipped.prompts), "default_prompt_name": head.shipped.default_prompt}
    with quiet_libraries():
        first = transformer_module(truncate_blocks(network.module, 1), network.tokenizer, max_length)
        (name,) = [name for name, part in first.named_children() if hasattr(part, "config")]
        setattr(first, name, network.module)  # all of its blocks, without writing and reading them
        return SentenceTransformer(modules=[first, *modules], device=str(network.device), **settings)


def linear_module(weight: Tensor, bias: Tensor, dtype: torch.dtype, output: str = "sentence_embedding") -> Any:
    """A linear map, weight (E, D) and bias (E,), as a Dense module."""
    from sentence_transformers.sentence_transformer.modules import Dense

    out_features, in_features = weight.shape
    dense = Dense(in_features, out_features, bias=True, activation_function=nn.Identity(), module_output_name=output)
    with torch.no_grad():
        dense.linear.weight.copy_(weight)
        dense.linear.bias.copy_(bias)
    return dense.to(dtype)

"""Modules of sentence-transformers, made from a transformers model and from the weights of a linear map."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from layerwise.core.outputs import scratch_folder


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


def linear_module(weight: Tensor, bias: Tensor, dtype: torch.dtype, output: str = "sentence_embedding") -> Any:
    """A linear map, weight (E, D) and bias (E,), as a Dense module."""
    from sentence_transformers.sentence_transformer.modules import Dense

    out_features, in_features = weight.shape
    dense = Dense(in_features, out_features, bias=True, activation_function=nn.Identity(), module_output_name=output)
    with torch.no_grad():
        dense.linear.weight.copy_(weight)
        dense.linear.bias.copy_(bias)
    return dense.to(dtype)

"""The modules of a SentenceTransformer: the cut model, weights of tokens, pooling, the linear map, normalisation."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch

from layerwise.exporter.left_out import LeftOut, weighting_module
from layerwise.exporter.routes import Route
from layerwise.models.network import Network
from layerwise.models.truncate import cut_blocks
from layerwise.ops.transforms import LinearMap
from layerwise.recipe import Recipe

POOLING_NAMES = {"mean": "mean", "max": "max", "first": "cls", "last": "lasttoken"}


def save_modules(
    network: Network, recipe: Recipe, route: Route, left_out: LeftOut, linear: LinearMap, folder: Path, max_length: int
) -> None:
    """Writes the recipe as a SentenceTransformer; its first module is a plain transformers model, cut."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    modules: list[Any] = [cut_module(network, route, folder.parent, max_length)]
    if left_out.ids:
        modules.append(weighting_module(network.tokenizer, left_out.ids))
    modules.append(Pooling(network.width, POOLING_NAMES[recipe.pooling], include_prompt=not left_out.prompt))
    if recipe.transform != "none":
        modules.append(dense_module(linear, network.dtype))
    if recipe.normalize:
        modules.append(Normalize())
    prompts: dict[str, Any] = {}
    if recipe.prompt:
        prompts = {"prompts": {"default": recipe.prompt}, "default_prompt_name": "default"}
    SentenceTransformer(modules=modules, device="cpu", **prompts).save(str(folder), create_model_card=False)


def cut_module(network: Network, route: Route, scratch: Path, max_length: int) -> Any:
    """The lower blocks and the tokenizer as a Transformer module that hands on the chosen hidden state."""
    from sentence_transformers.sentence_transformer.modules import Transformer

    with tempfile.TemporaryDirectory(dir=scratch, prefix=".cut.") as folder:
        cut = cut_blocks(network.module, route.keep)
        if route.untied:
            cut.config.tie_last_hidden_states = False
        cut.save_pretrained(folder)
        tokenizer = copy.deepcopy(network.tokenizer)
        tokenizer.chat_template = None  # sentence-transformers would wrap every text in it
        tokenizer.save_pretrained(folder)
        reading: dict[str, Any] = {}
        if not isinstance(route.output, str):
            method = {"method": "forward", "method_output_name": list(route.output)}
            reading = {"modality_config": {"text": method}, "module_output_name": "token_embeddings"}
        return Transformer(folder, max_seq_length=max_length, **reading)


def dense_module(linear: LinearMap, dtype: torch.dtype) -> Any:
    from sentence_transformers.sentence_transformer.modules import Dense

    wide, narrow = linear.weight.shape
    dense = Dense(narrow, wide, bias=True, activation_function=torch.nn.Identity())
    with torch.no_grad():
        dense.linear.weight.copy_(linear.weight)
        dense.linear.bias.copy_(linear.bias)
    return dense.to(dtype)

"""The modules of a SentenceTransformer: truncated model, token weights, pooling, linear map, normalisation."""

import copy
from pathlib import Path
from typing import Any

import torch

from layerwise.core.preprocessors import is_image
from layerwise.inputs.modalities import kind_of
from layerwise.inputs.templating import text_before, with_template
from layerwise.maps.linear import LinearMap, identity_map
from layerwise.models.modules import linear_module, transformer_module
from layerwise.models.readouts import last_recipe
from layerwise.models.shipped import similarity_of
from layerwise.models.truncate import truncate_blocks
from layerwise.verbs.export.backends.backend import ExportJob
from layerwise.verbs.export.backends.sentence_transformers.excluded_tokens import ExcludedTokens, weighting_module
from layerwise.verbs.export.backends.sentence_transformers.old_names import in_old_order, write_old_names
from layerwise.verbs.export.backends.sentence_transformers.routes import Route

POOLING_NAMES = {"mean": "mean", "max": "max", "first": "cls", "last": "lasttoken"}


def save_modules(job: ExportJob, route: Route, excluded: ExcludedTokens, folder: Path) -> None:
    """Writes the recipe as a SentenceTransformer; its first module is the truncated transformers model."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    network, recipe, linear = job.network, job.recipe, job.linear

    def pooling_modules(*modes: str) -> list[Any]:
        pooling = Pooling(network.width, modes if len(modes) > 1 else modes[0], include_prompt=not excluded.prompt)
        return [weighting_module(network.tokenizer, excluded.ids), pooling] if excluded.ids else [pooling]

    if recipe.shipped:
        modules = shipped_modules(job, route, folder.parent)
    else:
        of_layer = [readout for readout, _ in (recipe.parts[:1] if recipe.static else recipe.parts)]
        given = tuple(POOLING_NAMES[readout.pooling] for readout in of_layer)
        modes = in_old_order(given)
        if linear is not None and modes != list(given):
            linear = with_parts_in_order(linear, [given.index(mode) for mode in modes], network.width)
        modules = [truncated_module(job, route, folder.parent, every_layer=recipe.static), *pooling_modules(*modes)]
        if recipe.static:
            # The layer's vector is stored as the cls embedding, and pooling appends the vector of layer 0 to it.
            keep_vector = dense_module(identity_map(network.width), network.dtype, output="cls_token_embeddings")
            modules += [keep_vector, layer_zero_module(network.width, route.blocks), *pooling_modules("cls", "mean")]
    if linear is not None:
        modules.append(dense_module(linear, network.dtype))
    if recipe.normalize:
        modules.append(Normalize())
    settings: dict[str, Any] = {}
    prompt, shipped = text_before(recipe.template), network.shipped if recipe.shipped else None
    if shipped is not None:
        settings = {"similarity_fn_name": similarity_of(shipped) or None, "truncate_dim": shipped.dimensions}
    if shipped is not None and recipe.template == last_recipe(network).template:
        settings |= {"prompts": dict(shipped.prompts), "default_prompt_name": shipped.default_prompt}
    elif prompt:
        settings |= {"prompts": {"default": prompt}, "default_prompt_name": "default"}
    SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder), create_model_card=False)
    if kind_of(network.preprocessor) == "text":  # older readers know texts only
        write_old_names(folder, job.max_length)


def with_parts_in_order(linear: LinearMap, order: list[int], width: int) -> LinearMap:
    """The same map for parts that are concatenated in another order; each is `width` wide."""
    parts = torch.split(linear.weight, width, dim=1)
    return LinearMap(torch.cat([parts[i] for i in order], dim=1), linear.bias)


def shipped_modules(job: ExportJob, route: Route, scratch: Path) -> list[Any]:
    """The model's own modules, unchanged."""
    head = job.network.head
    assert head is not None, "only a model that ships modules has this readout"
    if head.shipped.own_encode_reason:  # it needs its own encode, so the whole model is copied unchanged
        model = copy.deepcopy(head.sentence_transformer())
        model.max_seq_length = job.max_length
        return list(model.children())
    return [truncated_module(job, route, scratch), *copy.deepcopy(head.modules)]


def truncated_module(job: ExportJob, route: Route, scratch: Path, *, every_layer: bool = False) -> Any:
    """The first blocks and the tokenizer as a Transformer module that outputs the chosen hidden state."""
    cut = truncate_blocks(job.network.module, route.blocks)
    if route.untied:
        cut.config.tie_last_hidden_states = False
    if every_layer:
        cut.config.output_hidden_states = True  # the module outputs all of them
    reading: dict[str, Any] = {}
    processor = job.network.preprocessor
    if not isinstance(route.output, str):
        method = {"method": "forward", "method_output_name": list(route.output)}
        reading = {
            "modality_config": {kind_of(processor): method},
            "module_output_name": "token_embeddings",
        }
    if is_image(processor):
        return transformer_module(cut, processor.processor, None, scratch, **reading)
    tokenizer = with_template(processor, job.recipe.template)
    return transformer_module(cut, tokenizer, job.max_length, scratch, **reading)


def layer_zero_module(width: int, blocks: int) -> Any:
    """Selects layer 0: a weighted sum of all layers with weight 0 for the others."""
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    weights = torch.nn.Parameter(torch.eye(1, blocks + 1).flatten())
    return WeightedLayerPooling(width, num_hidden_layers=blocks, layer_start=0, layer_weights=weights)


def dense_module(linear: LinearMap, dtype: torch.dtype, output: str = "sentence_embedding") -> Any:
    return linear_module(linear.weight, linear.bias, dtype, output)

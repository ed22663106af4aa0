"""Routes: how to get a layer from a truncated model, by number of blocks and output."""

from dataclasses import dataclass
from typing import Any

from layerwise.core.checks import EXPORT_MODES, SHIPPED, require_choice
from layerwise.core.errors import ExportError, InputError
from layerwise.core.preprocessors import ImagePreprocessor
from layerwise.core.recipe import Recipe
from layerwise.models.network import Network


@dataclass(frozen=True)
class Route:
    """How to get a layer from a truncated model: how many blocks to keep, and which output to use."""

    blocks: int
    output: str | tuple[str, int]
    untied: bool = False  # needs config.tie_last_hidden_states = False


def require_loadable(network: Network) -> None:
    """Raises if the exported folder would be loaded as a different model, as for one stack of T5."""
    from transformers import MODEL_MAPPING

    config: Any = network.module.config
    default_class: Any = MODEL_MAPPING.get(type(config), None)
    if default_class is not None and not isinstance(network.module, default_class):
        raise ExportError(
            f"{type(network.module).__name__} is part of {default_class.__name__}, and its folder would be loaded as "
            "the full model: a single stack of such a model cannot be exported. layerwise embed writes its vectors"
        )


def require_plain_images(network: Network, recipe: Recipe) -> None:
    """Raises if plain sentence-transformers would give other vectors of an image."""
    preprocessor: ImagePreprocessor = network.preprocessor
    if network.family.width_changes and recipe.layer < network.depth:
        raise ExportError(
            "a layer of this model is a stage that ends by merging patches, and its config cannot say that the last "
            "stage does so too; only the last layer can be exported"
        )
    if preprocessor.patches.order_input:
        raise ExportError(
            "this model shuffles patches and leaves most of them out unless the caller passes their order, which "
            "sentence-transformers does not, so it cannot be exported"
        )
    if recipe.tokens != "all" and preprocessor.patches.special:
        raise InputError(
            f"plain sentence-transformers pools every position of an image, so tokens {recipe.tokens} cannot be "
            "exported; use --tokens all, or --pooling first for the class token"
        )


def require_static_exportable(network: Network, pooling: str, *, prompt_excluded: bool) -> None:
    """Raises if static embeddings cannot be exported with this pooling or prompt."""
    choose_route(network, 0, "raw", EXPORT_MODES[0])
    if pooling == SHIPPED:
        raise ExportError("+static cannot be exported for the model as shipped; choose its last layer by number")
    if prompt_excluded:  # before sentence-transformers 6, both poolings would exclude it
        raise ExportError("+static cannot be exported with an excluded prompt; use --tokens all")
    if pooling == "first":
        raise ExportError("+static cannot be exported with pooling first; use mean, last or max")


def choose_route(network: Network, layer: int, norm: str, mode: str) -> Route:
    """portable keeps one extra block and works with any version; compact keeps no extra block."""
    family = network.family
    require_choice("mode", mode, EXPORT_MODES)
    if norm == SHIPPED:
        return Route(network.depth, "last_hidden_state")
    if norm == "normed":
        if network.structure.final_norm is None or layer == 0:
            raise InputError("norm normed needs a model with a final norm and a layer above 0; use norm raw")
        return Route(layer, "last_hidden_state")
    if layer == network.depth or (mode == "compact" and layer > 0):
        if network.structure.final_norm is None:
            return Route(layer, "last_hidden_state")
        return Route(
            layer,
            ("hidden_states", -2 if family.appends_normed_output else -1),
            untied=not family.appends_normed_output,
        )
    if layer < family.first_hidden_state:
        raise ExportError(
            "this architecture's hidden_states do not include the embeddings, so layer 0 cannot be exported; use 1"
        )
    return Route(max(layer + 1, 1), ("hidden_states", layer - family.first_hidden_state))

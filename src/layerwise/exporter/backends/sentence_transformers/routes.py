"""Routes: how to get a layer from a truncated model, by number of blocks and output."""

from dataclasses import dataclass
from typing import Any

from layerwise.core.checks import EXPORT_MODES, SHIPPED, require_choice
from layerwise.core.errors import ExportError, InputError
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
            "the full model: a single stack of such a model cannot be exported"
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

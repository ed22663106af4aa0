"""Routes: how a layer comes out of a cut model, by the block count to keep and the output to take."""

from dataclasses import dataclass
from typing import Any

from layerwise.core.checks import MODES, SHIPPED, require_word
from layerwise.core.errors import ExportError, InputError
from layerwise.models.network import Network


@dataclass(frozen=True)
class Route:
    """How a layer comes out of a cut model: the blocks to keep, and the output to take."""

    blocks: int
    output: str | tuple[str, int]
    untied: bool = False  # needs config.tie_last_hidden_states = False


def require_loadable(network: Network) -> None:
    """Raises where a folder of this module would be loaded as another model, as for one stack of T5."""
    from transformers import MODEL_MAPPING

    config: Any = network.module.config
    usual: Any = MODEL_MAPPING.get(type(config), None)
    if usual is not None and not isinstance(network.module, usual):
        raise ExportError(
            f"{type(network.module).__name__} is a part of {usual.__name__}, and its folder would be loaded as the "
            "whole: one stack of such a model cannot be exported"
        )


def require_static_exportable(network: Network, pooling: str, *, prompt_excluded: bool) -> None:
    """Raises where token embeddings cannot stand beside a layer: their vector takes the place of the first token's."""
    choose_route(network, 0, "raw", MODES[0])
    if pooling == SHIPPED:
        raise ExportError("+static cannot be exported beside the model as shipped; name its last layer by number")
    if prompt_excluded:  # two poolings would both take it away in sentence-transformers before 6
        raise ExportError("+static cannot be exported with a prompt that is left out; use --tokens all")
    if pooling == "first":
        raise ExportError("+static cannot be exported with pooling first; use mean, last or max")


def choose_route(network: Network, layer: int, norm: str, mode: str) -> Route:
    """portable keeps one block more than needed and works with any version; compact keeps none too many."""
    family = network.family
    require_word("mode", mode, MODES)
    if norm == SHIPPED:
        return Route(network.depth, "last_hidden_state")
    if norm == "normed":
        if network.anatomy.final_norm is None or layer == 0:
            raise InputError("a normed readout needs a final norm and a layer above 0; use norm raw")
        return Route(layer, "last_hidden_state")
    if layer == network.depth or (mode == "compact" and layer > 0):
        if network.anatomy.final_norm is None:
            return Route(layer, "last_hidden_state")
        return Route(layer, ("hidden_states", -2 if family.norm_appended else -1), untied=not family.norm_appended)
    if layer < family.first_hidden_state:
        raise ExportError("this family's hidden_states lack the embeddings: layer 0 cannot be exported, layer 1 can")
    return Route(max(layer + 1, 1), ("hidden_states", layer - family.first_hidden_state))

"""The rows of a recipe's parts: what its map is fitted on, and what an exported model is compared with."""

from collections.abc import Sequence

from torch import Tensor

from layerwise.core.recipe import Recipe
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.passes.vectors import pooled_vectors


def rows_of_parts(network: Network, recipe: Recipe, payloads: Sequence[str], max_length: int) -> list[Tensor]:
    """Pooled rows (N, D) of each of the recipe's parts before its map, by the pass that scan uses."""
    examples = [Example(str(i), recipe.prompt + payload) for i, payload in enumerate(payloads)]
    readouts = [readout for readout, _ in recipe.parts]
    vectors = pooled_vectors(network, examples, readouts, max_length=max_length)
    return [vectors[readout] for readout in readouts]

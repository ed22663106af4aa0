"""The rows of a recipe's parts: for fitting its map, and for checking an exported model."""

from collections.abc import Sequence

from torch import Tensor

from layerwise.core.recipe import Recipe
from layerwise.inputs.source import Example, Payload
from layerwise.models.network import Network
from layerwise.passes.vectors import pooled_vectors


def part_rows(network: Network, recipe: Recipe, payloads: Sequence[Payload], max_length: int) -> list[Tensor]:
    """Pooled rows (N, D) of each part of the recipe before its map, from the same pass as scan."""
    examples = [Example(str(i), payload) for i, payload in enumerate(payloads)]
    readouts = [readout for readout, _ in recipe.parts]
    vectors = pooled_vectors(network, examples, readouts, max_length=max_length, template=recipe.template)
    return [vectors[readout] for readout in readouts]

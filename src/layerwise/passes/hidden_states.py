"""HiddenStates: where hidden states come from.

That is a model that we loaded, whose blocks are tapped (models/network.py), one whose blocks are read from disk one by
one (models/streamed.py), vLLM, or files (models/elsewhere). Metrics, runs and verbs never ask.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

OnLayer = Callable[[int, Tensor], None]  # the layer, and its hidden states (B, T, D)
OnPoint = Callable[[int, str, Tensor], None]  # the layer, a point inside its block, and its hidden states


class HiddenStates(Protocol):
    """Runs batches and hands on the hidden states of each chosen layer as soon as they are there."""

    @property
    def device(self) -> torch.device:
        """Where inputs go."""

    @property
    def preprocessor(self) -> Any:
        """What makes the inputs: a tokenizer, a feature extractor, or a processor of the user's."""

    def read_layers(
        self, inputs: Mapping[str, Tensor], layers: Collection[int], on_layer: OnLayer, on_point: OnPoint | None = None
    ) -> None:
        """Calls on_layer for each chosen layer of a batch, and on_point for each point inside their blocks.

        Layer 0 is what enters block 1, layer k the output of block k. Nothing is kept after a call.
        """

    def normed(self, hidden: Tensor) -> Tensor:
        """Hidden states after the model's final norm; raises if it has none."""

    def output(self, hidden: Tensor) -> Tensor:
        """What the model returns, from the hidden states of its last layer."""

"""What is known about a model before its weights are read."""

from dataclasses import dataclass
from typing import Any

from layerwise.core.checks import PoolingChoice
from layerwise.models.find_blocks import ModelStructure
from layerwise.models.network import Network
from layerwise.models.shipped import Shipped


@dataclass(frozen=True)
class ModelInfo:
    """What is known about a model before its weights are read; enough for planning."""

    structure: ModelStructure
    parameters: int
    max_length: int
    default_length: int
    preprocessor: Any
    shipped: Shipped | None = None
    plain_pooling: PoolingChoice = "mean"  # the pooling to use if the model ships none
    quantized_bytes: int = 0  # size of the weights if they are quantised and here

    @property
    def depth(self) -> int:
        return self.structure.depth

    @property
    def width(self) -> int:
        return self.structure.width

    @property
    def has_norm(self) -> bool:
        return self.structure.final_norm is not None


def network_info(network: Network) -> ModelInfo:
    """The same of a model that is loaded."""
    parameters = sum(weight.numel() for weight in network.parameters())
    return ModelInfo(
        network.structure, parameters, network.max_length, network.default_length, network.preprocessor,
        network.shipped, network.plain_pooling,
    )  # fmt: skip

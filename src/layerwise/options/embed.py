"""embed: the vectors of layers."""

from dataclasses import dataclass

from layerwise.options.engine import Progress
from layerwise.options.field import require_valid
from layerwise.options.reading import BatchTokens, Layers, MaxLength, OneNorm, OneOwnPooling, OneTokenChoice


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """The options of `embed`."""

    layers: Layers = "last"
    norm: OneNorm = "raw"
    tokens: OneTokenChoice = "all"
    pooling: OneOwnPooling = None
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)

"""embed: vectors of chosen layers."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from layerwise.core.options import Option, require_valid
from layerwise.engines.options import Progress
from layerwise.inputs.options import Data
from layerwise.models.spec import (
    BatchTokens,
    Layers,
    MaxLength,
    Model,
    SingleNorm,
    SinglePoolingOrDefault,
    SingleTokenChoice,
)


@dataclass(frozen=True)
class EmbedOptions:
    """The options of `embed`."""

    model: Model
    data: Data
    _: KW_ONLY
    layers: Layers = "last"
    norm: SingleNorm = "raw"
    tokens: SingleTokenChoice = "all"
    pooling: SinglePoolingOrDefault = None
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    out: Annotated[str | Path | None, Option("Parquet file to write: id, text, layer_K")] = None
    overwrite: Annotated[bool, Option("replace an existing file")] = False
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)

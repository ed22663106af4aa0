"""embed: vectors of chosen layers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from layerwise.core.options import Option, require_valid
from layerwise.engines.options import Progress
from layerwise.models.spec import (
    BatchTokens,
    Layers,
    MaxLength,
    SingleNorm,
    SinglePoolingOrDefault,
    SingleTokenChoice,
)


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """The options of `embed`."""

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

"""correlate: how metrics and scores correlate over the layers."""

from dataclasses import dataclass

from layerwise.core.options import require_valid
from layerwise.models.spec import SingleNorm


@dataclass(frozen=True, kw_only=True)
class CorrelateOptions:
    """The options of `correlate`."""

    norm: SingleNorm = "raw"

    def __post_init__(self) -> None:
        require_valid(self)

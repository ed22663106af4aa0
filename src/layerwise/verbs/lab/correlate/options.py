"""correlate: how metrics and scores correlate over the layers."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from layerwise.core.options import Option, require_valid
from layerwise.models.spec import SingleNorm
from layerwise.runs.folder import RunLike


@dataclass(frozen=True)
class CorrelateOptions:
    """The options of `correlate`."""

    scan: Annotated[RunLike, Option("folder, url or LayerTable of a scan", library_only=True)]
    eval: Annotated[RunLike, Option("folder, url or LayerTable of an eval of the same model", library_only=True)]
    _: KW_ONLY
    norm: SingleNorm = "raw"

    def __post_init__(self) -> None:
        require_valid(self)

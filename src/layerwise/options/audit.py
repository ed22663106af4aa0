"""audit: rules for choosing a layer, tested on known scores."""

from dataclasses import dataclass
from typing import Annotated, Any

from layerwise.options.field import Option, require_valid


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options of `audit`."""

    metrics: Annotated[
        Any, Option("table (.parquet, .csv) with model, task, layer, metric, value; task may be empty")
    ] = None
    rules: Annotated[Any, Option("rules as for pick, separated by commas")] = "last,second_to_last,depth:80%"

    def __post_init__(self) -> None:
        require_valid(self)

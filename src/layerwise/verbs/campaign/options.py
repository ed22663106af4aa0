"""campaign: the keys of a campaign file. docs/scale.md describes how to write models, data and settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from layerwise.core.options import Option
from layerwise.engines.options import AllowMissing


@dataclass(frozen=True, kw_only=True)
class CampaignOptions:
    """The keys of a campaign file."""

    out: Annotated[str, Option("folder or URL for the campaign's results")]
    models: Annotated[Sequence[Any], Option("model names, or mappings with name:, options and revisions")]
    data: Annotated[Mapping[str, Any] | None, Option("a name for each data set, and its options")] = None
    settings: Annotated[Mapping[str, Any] | None, Option("a name for each group of scan settings")] = None
    engine: Annotated[Any, Option("local, ray, or the options of a Cluster")] = "local"
    allow_missing: AllowMissing = 0

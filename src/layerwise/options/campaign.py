"""campaign: the keys of a campaign file. How models, data and settings are written is said in docs/scale.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from layerwise.options.engine import AllowMissing
from layerwise.options.field import Option


@dataclass(frozen=True, kw_only=True)
class CampaignOptions:
    """The keys of a campaign file."""

    out: Annotated[str, Option("the folder or url that the campaign is kept in")]
    models: Annotated[Sequence[Any], Option("names, or name: with options and revisions")]
    data: Annotated[Mapping[str, Any] | None, Option("a name for each data set, and how it is opened")] = None
    settings: Annotated[Mapping[str, Any] | None, Option("a name for each group of settings of a scan")] = None
    engine: Annotated[Any, Option("local, ray, or the options of a Cluster")] = "local"
    allow_missing: AllowMissing = 0

"""audit: rules for choosing a layer, tested on known scores; and the recipes of a protocol, scored on its tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import require_count
from layerwise.core.options import HOW_IT_RUNS, Option, require_valid
from layerwise.engines.options import Progress, Threads
from layerwise.models.spec import ModelLike
from layerwise.verbs.pick.rules import Rule

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerwise.inputs.source import DataLike
else:
    DataFrame = DataLike = Any  # importing them takes long

StageName = Literal["development", "test"]
GROUP = "with --protocol"


@dataclass(frozen=True)
class AuditOptions:
    """The options of `audit`."""

    scores: Annotated[
        DataFrame,
        Option("table with the columns family, model, task, layer and score (in points, 0 to 100)", library_only=True),
    ]
    metrics: Annotated[
        DataFrame | None, Option("table (.parquet, .csv) with model, task, layer, metric, value; task may be empty")
    ] = None
    _: KW_ONLY
    rules: Annotated[str | Sequence[str | Rule], Option("rules as for pick, separated by commas")] = (
        "last,second_to_last,depth:80%"
    )

    def __post_init__(self) -> None:
        require_valid(self)


@dataclass(frozen=True)
class ProtocolOptions:
    """The options of `audit_protocol`."""

    protocol: Annotated[str | Path, Option("the protocol file (JSON)", library_only=True)]
    _: KW_ONLY
    stage: Annotated[StageName, Option("development, or test: scored once, with frozen recipes", group=GROUP)]
    data_root: Annotated[
        str | Path, Option("folder with the tasks in development/ and test/, and labels/TASK.csv if any", group=GROUP)
    ]
    models: Annotated[
        str | Path | Mapping[str, ModelLike], Option("folder that contains the models by their names", group=GROUP)
    ]
    out: Annotated[str | Path, Option("folder for scores and results; a later call resumes from it", group=GROUP)]
    only: Annotated[str | None, Option("run only this model of the stage", group=GROUP, metavar="MODEL")] = None
    fit: Annotated[DataLike | None, Option("texts to fit the linear maps on", group=GROUP, is_text_source=True)] = None
    workers: Annotated[
        int,
        Option(
            "number of scoring processes (0: none; default: one per core)",
            partial(require_count, minimum=0),
            HOW_IT_RUNS,
        ),
    ] = 0
    threads: Threads = None
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)

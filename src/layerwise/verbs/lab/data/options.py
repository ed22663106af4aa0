"""data: prepare labelled tables for eval."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import require_count
from layerwise.core.options import Option, require_valid

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = Any  # importing it takes long

TaskType = Literal["Classification", "Clustering", "PairClassification", "STS", "Reranking", "Retrieval"]


@dataclass(frozen=True)
class DataOptions:
    """The options of `data`."""

    root: Annotated[str | Path, Option("folder that holds your tasks; made if it does not exist", library_only=True)]
    name: Annotated[
        str, Option("the task's name; with that of an mteb task, mteb's own code scores your files", library_only=True)
    ]
    _: KW_ONLY
    type: Annotated[TaskType, Option("mteb task type; docs/eval.md lists the columns that each needs")]
    test: Annotated[str | Path | DataFrame, Option("table to score on: .parquet, .csv or .jsonl")]
    train: Annotated[
        str | Path | DataFrame | None, Option("table to train the classifier on (Classification only)")
    ] = None
    subset: Annotated[str, Option("mteb subset, such as en")] = "default"
    cap: Annotated[int | None, Option("keep at most this many test examples, sampled by hashed id", require_count)] = (
        None
    )

    def __post_init__(self) -> None:
        require_valid(self)

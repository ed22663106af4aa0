"""data: labelled tables prepared for eval."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_count
from layerwise.options.field import Option, require_valid

TaskType = Literal["Classification", "Clustering", "PairClassification", "STS", "Reranking", "Retrieval"]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The options of `data`."""

    type: Annotated[TaskType, Option("type of the task, as mteb names it")]
    test: Annotated[Any, Option("table to score on: .parquet, .csv or .jsonl")]
    train: Annotated[Any, Option("table to fit the classifier on (Classification)")] = None
    subset: Annotated[str, Option("mteb's subset, such as en")] = "default"
    cap: Annotated[int | None, Option("keep at most this many test examples, by hashed id", require_count)] = None

    def __post_init__(self) -> None:
        require_valid(self)

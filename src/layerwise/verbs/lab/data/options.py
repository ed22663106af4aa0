"""data: prepare labelled tables for eval."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_count
from layerwise.core.options import Option, require_valid

TaskType = Literal["Classification", "Clustering", "PairClassification", "STS", "Reranking", "Retrieval"]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The options of `data`."""

    type: Annotated[TaskType, Option("mteb task type")]
    test: Annotated[Any, Option("table to score on: .parquet, .csv or .jsonl")]
    train: Annotated[Any, Option("table to train the classifier on (Classification only)")] = None
    subset: Annotated[str, Option("mteb subset, such as en")] = "default"
    cap: Annotated[int | None, Option("keep at most this many test examples, sampled by hashed id", require_count)] = (
        None
    )

    def __post_init__(self) -> None:
        require_valid(self)

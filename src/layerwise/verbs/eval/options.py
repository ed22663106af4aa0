"""eval: score layers or recipes on labelled tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import Precision, require_count
from layerwise.core.options import HOW_IT_RUNS, Option, require_valid
from layerwise.engines.options import MOST_THREADS, Engine, Progress, Threads
from layerwise.models.spec import (
    BatchTokens,
    Layers,
    MaxLength,
    Model,
    Norms,
    PoolingsOrDefault,
    Templates,
    TokenChoices,
)

if TYPE_CHECKING:
    from layerwise.inputs.source import DataLike
    from layerwise.maps.fitted import AnyRecipe
else:
    AnyRecipe = DataLike = Any  # importing them loads torch

StoredVectors = Literal["keep", "evict"]
WORKERS = (
    "local: number of scoring processes (0: none; default: one per core); "
    'ray: worker processes, each with a copy of the model. A script that uses them needs `if __name__ == "__main__":`'
)


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `eval`."""

    model: Model
    tasks: Annotated[
        str | Sequence[str],
        Option("paper32, mteb task names, task types such as STS, or all (every task in the data root)"),
    ]
    _: KW_ONLY
    out: Annotated[str | Path, Option("folder for scores, mteb results and vectors; a later call resumes from it")]
    data_root: Annotated[
        str | Path | None, Option("folder with tasks prepared by `layerwise lab data` (works offline)")
    ] = None
    layers: Layers = "all"
    norm: Norms = "raw"
    tokens: TokenChoices = "all"
    pooling: PoolingsOrDefault = None
    template: Templates = None
    recipes: Annotated[
        AnyRecipe | Sequence[AnyRecipe],
        Option(
            "score these recipes instead of plain layers; a FittedRecipe with the map that it brings", library_only=True
        ),
    ] = ()
    fit: Annotated[
        DataLike | None,
        Option("texts to fit the linear maps on; task: use each task's own texts (no labels)", is_text_source=True),
    ] = None
    max_length: MaxLength = None
    prompts: Annotated[
        Mapping[str, str] | None,
        Option(
            "text put before each text, by role (query, document), task name or task type, as mteb does it; it "
            "replaces the template there",
            library_only=True,
        ),
    ] = None
    batch_tokens: BatchTokens = 4096
    precision: Annotated[Precision, Option("dtype of stored vectors")] = "float32"
    vectors: Annotated[StoredVectors, Option("keep vectors on disk, or delete them after each task (evict)")] = "keep"
    engine: Engine = "local"
    workers: Annotated[int, Option(WORKERS, partial(require_count, minimum=0, maximum=MOST_THREADS), HOW_IT_RUNS)] = 0
    threads: Threads = None
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)


OPTIONS = EvaluateOptions

"""pick: recommend a layer or recipe."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from layerwise.options.engine import Progress
from layerwise.options.field import Option, require_valid
from layerwise.options.reading import MaxLength, Seed

Prefer = Literal["quality", "fast"]


@dataclass(frozen=True, kw_only=True)
class PickOptions:
    """The options of `pick`."""

    labels: Annotated[
        Any, Option("labelled examples: .csv, .jsonl or .parquet with columns text,label or text1,text2,score")
    ] = None
    rule: Annotated[Any, Option("selection rule: depth:80%, min:dime, max:infonce@20%-90% ...")] = None
    prefer: Annotated[
        Prefer, Option("quality: the best score; fast: the lowest layer that scores the same within noise")
    ] = "quality"
    layer_only: Annotated[bool, Option("choose a layer without a linear map")] = False
    static: Annotated[
        bool,
        Option("leave whitened token embeddings out of the recipe: half the width, lower scores on most tasks"),
    ] = True
    model: Annotated[Any, Option("the model to run, if the run's model was moved or renamed")] = None
    max_length: MaxLength = None
    seed: Seed = 0
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)

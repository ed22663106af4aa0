"""shrink: fewer blocks, the same vectors."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_count
from layerwise.core.errors import InputError
from layerwise.core.options import HOW_IT_RUNS, Option, require_valid
from layerwise.engines.options import Progress
from layerwise.inputs.options import Documents, Pairs, Queries

ShrinkMethod = Literal["linear", "distill"]
TRAINING = "training (--method distill)"


def require_positive(name: str, number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise InputError(f"{name} must be a number above 0, not {number!r}")


@dataclass(frozen=True, kw_only=True)
class ShrinkOptions:
    """The options of `shrink`."""

    queries: Queries = None
    documents: Documents = None
    pairs: Pairs = None
    method: Annotated[
        ShrinkMethod,
        Option("linear: fit a map, no training; distill: then train blocks and map to give the original's vectors"),
    ] = "linear"
    blocks: Annotated[
        int | None, Option("how many blocks to keep; default: half of them", require_count, metavar="N")
    ] = None
    choose: Annotated[
        str, Option("which blocks: measured, prefix (the first), even (evenly spaced), or numbers such as 1,2,6")
    ] = "measured"
    minutes: Annotated[
        float | None, Option("train for this long, by the clock", require_positive, TRAINING, metavar="M")
    ] = None
    steps: Annotated[int | None, Option("or train for this many steps", require_count, TRAINING, metavar="N")] = None
    lora: Annotated[
        int | None,
        Option("train low-rank adapters of this rank instead of all weights", require_count, TRAINING, metavar="R"),
    ] = None
    batch_size: Annotated[int, Option("texts per step", partial(require_count, minimum=2), TRAINING)] = 32
    learning_rate: Annotated[float, Option("highest learning rate", require_positive, TRAINING)] = 3e-4
    seed: Annotated[int, Option("seed of the order of texts", partial(require_count, minimum=0))] = 0
    compatible: Annotated[bool, Option("do not check whether an index of the original's vectors can be kept")] = True
    work: Annotated[
        str | Path | None,
        Option(
            "folder for the original's vectors and for checkpoints, kept for further calls; "
            "default: OUT.work, deleted when the model is finished",
            group=HOW_IT_RUNS,
        ),
    ] = None
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)
        if self.method == "distill" and (self.minutes is None) == (self.steps is None):
            raise InputError("method distill needs either minutes (--minutes 10) or steps (--steps 1000)")
        if self.method == "linear" and (self.minutes or self.steps or self.lora):
            raise InputError("minutes, steps and lora are for training; add --method distill (method='distill')")

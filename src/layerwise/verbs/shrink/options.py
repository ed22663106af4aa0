"""shrink: fewer blocks, the same vectors."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import require_count, require_transform
from layerwise.core.errors import InputError
from layerwise.core.options import HOW_IT_RUNS, Option, changed_options, option_specs, require_valid
from layerwise.engines.options import Progress
from layerwise.inputs.options import Documents, Pairs, Queries
from layerwise.models.spec import Model, ModelLike

if TYPE_CHECKING:
    from layerwise.inputs.source import DataLike
else:
    DataLike = Any  # importing it loads numpy

ShrinkMethod = Literal["linear", "distill", "static"]
Way = Literal["compare", "linear", "distill", "static", "student"]
TokenWeights = Literal["sif", "idf", "zipf", "none"]
TRAINING, STATIC = "training (--method distill)", "a model without blocks (--method static)"
# The options that only some methods have; of the others, only the default is accepted.
OF_BLOCKS = ("blocks", "choose", "compatible", "work")
OF_TRAINING = ("minutes", "steps", "lora", "batch_size", "learning_rate")
OF_STATIC = ("layer", "transform", "dims", "normalize", "weights", "words", "int8")


def require_positive(name: str, number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise InputError(f"{name} must be a number above 0, not {number!r}")


@dataclass(frozen=True)
class ShrinkOptions:
    """The options of `shrink`."""

    model: Model
    data: Annotated[
        DataLike | None,
        Option(
            "texts like those that the model will read, some thousands, in any form that `texts(...)` takes; a tenth, "
            "at most 500, is held out for choosing, and as many for the figures that are reported; None with "
            "--queries, --documents or --pairs",
            library_only=True,
        ),
    ]
    out: Annotated[str | Path, Option("folder to write; must not exist")]
    _: KW_ONLY
    queries: Queries = None
    documents: Documents = None
    pairs: Pairs = None
    method: Annotated[
        ShrinkMethod | None,
        Option(
            "linear: fit a map, no training; distill: then train blocks and map to give the original's vectors; "
            "static: keep no block, only one vector per token; default: linear with --blocks or --choose, otherwise "
            "the cheap ways are tried and compared"
        ),
    ] = None
    student: Annotated[
        ModelLike | None,
        Option("instead, fit a map from this embedding model's vectors to the original's", metavar="MODEL"),
    ] = None
    blocks: Annotated[
        int | None, Option("how many blocks to keep; default: half of them", require_count, metavar="N")
    ] = None
    choose: Annotated[
        str, Option("which blocks: measured, prefix (the first), even (evenly spaced), or numbers such as 1,2,6")
    ] = "measured"
    minutes: Annotated[
        float | None,
        Option(
            "train for this long, by the clock, so that weights differ from call to call",
            require_positive,
            TRAINING,
            metavar="M",
        ),
    ] = None
    steps: Annotated[
        int | None,
        Option(
            "or train for this many steps, with the same weights on every call", require_count, TRAINING, metavar="N"
        ),
    ] = None
    lora: Annotated[
        int | None,
        Option("train low-rank adapters of this rank instead of all weights", require_count, TRAINING, metavar="R"),
    ] = None
    batch_size: Annotated[int, Option("texts per step", partial(require_count, minimum=2), TRAINING)] = 32
    learning_rate: Annotated[
        float,
        Option(
            "highest learning rate, reached after a tenth of the training; then it falls to 0",
            require_positive,
            TRAINING,
        ),
    ] = 3e-4
    seed: Annotated[
        int, Option("seed of the division of texts and of their order", partial(require_count, minimum=0))
    ] = 0
    compatible: Annotated[bool, Option("do not check whether an index of the original's vectors can be kept")] = True
    work: Annotated[
        str | Path | None,
        Option(
            "folder for the original's vectors and for checkpoints, kept for further calls; "
            "default: OUT.work, deleted when the model is finished",
            group=HOW_IT_RUNS,
        ),
    ] = None
    layer: Annotated[
        int | str, Option("which layer the vectors of tokens come from, before they are fitted", group=STATIC)
    ] = "last"
    transform: Annotated[
        str,
        Option(
            "map them instead of fitting them to the model's vectors: center, zscore, remove_top:3 or whiten",
            lambda name, word: require_transform(word),
            STATIC,
        ),
    ] = "none"
    dims: Annotated[int | None, Option("keep this many principal directions", require_count, STATIC, metavar="N")] = (
        None
    )
    normalize: Annotated[bool, Option("scale vectors to length 1", group=STATIC)] = False
    weights: Annotated[
        TokenWeights,
        Option(
            "how much a token counts: by its place in the vocabulary (zipf), by its frequency in the texts (sif, idf), "
            "or all the same (none)",
            group=STATIC,
        ),
    ] = "zipf"
    words: Annotated[
        int,
        Option(
            "add so many frequent words of the texts to the vocabulary",
            partial(require_count, minimum=0),
            STATIC,
            metavar="N",
        ),
    ] = 0
    int8: Annotated[bool, Option("write 8-bit vectors, a quarter of the size", group=STATIC)] = False
    progress: Progress = False

    @property
    def way(self) -> Way:
        """What is made."""
        if self.method is not None:
            return self.method
        if self.student is not None:
            return "student"
        return "linear" if self.blocks is not None or self.choose != "measured" else "compare"

    def __post_init__(self) -> None:
        require_valid(self)
        if self.student is not None and (self.method or self.blocks or self.choose != "measured"):
            raise InputError("--student is a whole model: leave out --method, --blocks and --choose")
        others = OF_BLOCKS + OF_TRAINING if self.method == "static" else OF_STATIC
        if given := [name for name in changed_options(self) if name in others]:
            flags = ", ".join(spec.flag for spec in option_specs(ShrinkOptions) if spec.name in given)
            if self.method is None:
                raise InputError(f"{flags}: only one method has that; say which (--method)")
            raise InputError(f"method {self.method} has no {flags}: leave out {flags}")
        if "+" in self.transform:
            raise InputError(f"a static model has one vector per token: leave out + in --transform {self.transform}")
        if self.method == "distill" and (self.minutes is None) == (self.steps is None):
            raise InputError("method distill needs either minutes (--minutes 10) or steps (--steps 1000)")
        if self.method != "distill" and (self.minutes or self.steps or self.lora):
            raise InputError("minutes, steps and lora are for training; add --method distill (method='distill')")

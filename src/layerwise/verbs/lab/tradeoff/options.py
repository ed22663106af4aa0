"""tradeoff: score and cost of each layer."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from layerwise.core.checks import Choices, require_count
from layerwise.core.option_records import options_record
from layerwise.core.options import Option, require_valid
from layerwise.engines.options import Progress
from layerwise.models.spec import ModelLike
from layerwise.runs.folder import RunLike
from layerwise.verbs.export.options import Mode

if TYPE_CHECKING:
    from layerwise.inputs.source import DataLike
else:
    DataLike = Any  # importing it loads numpy

AT_MOST_REPEATS = partial(require_count, maximum=10_000)  # the median of fewer is as good; more would only be a mistake


@dataclass(frozen=True)
class TradeoffOptions:
    """The options of `tradeoff`."""

    run: Annotated[
        RunLike, Option("a run of eval or scan: its folder or its table", library_only=True, is_recorded=False)
    ]
    score: Annotated[str, Option("a task or metric of the run, or mean (over all tasks)")] = "mean"
    _: KW_ONLY
    model: Annotated[
        ModelLike | None, Option("the model to time, if the name in the run record can no longer be loaded")
    ] = None
    data: Annotated[DataLike, Option("texts to time the model on; the first 16 are used", is_text_source=True)] = "demo"
    others: Annotated[
        Choices | None,
        Option(
            "eval run of another model, such as a shrunk or a smaller one, to compare with; repeat for several",
            is_repeated=True,
            metavar="RUN",
        ),
    ] = None
    mode: Mode = "portable"
    repeats: Annotated[int, Option("number of timed repetitions per layer", AT_MOST_REPEATS)] = 5
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)


def tradeoff_record(options: TradeoffOptions) -> dict[str, Any]:
    """The record of a call of tradeoff: its options."""
    return {"verb": "tradeoff", **options_record(options)}


OPTIONS = TradeoffOptions

"""tradeoff: score and cost of each layer."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from layerwise.core.checks import Choices, require_count
from layerwise.core.option_records import options_record
from layerwise.core.options import Option, require_valid
from layerwise.engines.options import Progress
from layerwise.verbs.export.options import Mode

AT_MOST_REPEATS = partial(require_count, maximum=10_000)  # the median of fewer is as good; more would only be a mistake


@dataclass(frozen=True, kw_only=True)
class TradeoffOptions:
    """The options of `tradeoff`."""

    score: Annotated[str, Option("a task or metric of the run, or mean (over all tasks)")] = "mean"
    model: Annotated[Any, Option("the model to time, if the name in the run record can no longer be loaded")] = None
    data: Annotated[Any, Option("texts to time the model on", is_text_source=True)] = "demo"
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

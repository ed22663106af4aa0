"""stress: scan increasingly distorted prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from layerwise.core.checks import require_number, split_choices
from layerwise.core.options import Option, option_specs
from layerwise.engines.options import AllowMissing, Progress, ScanEngine, Threads
from layerwise.verbs.scan.options import MeasureOptions, ScanSettings

if TYPE_CHECKING:
    from layerwise.metrics.base import Metric
else:
    Metric = Any  # importing it loads torch

StressKind = Literal["repeat_one", "repeat_any", "random", "length", "random_length"]
Levels = str | Sequence[float] | None


def parse_levels(name: str, levels: Levels) -> list[float]:
    """Levels as numbers, from a list or a string such as 0,0.5,1."""
    parts = split_choices(name, levels) if isinstance(levels, str) else levels or ()
    return [require_number("a level", level, f"--{name}") for level in parts]


@dataclass(frozen=True, kw_only=True)
class StressOptions(MeasureOptions):
    """The options of `stress`."""

    kind: Annotated[
        StressKind,
        Option(
            "repeat_one: repeat one token; repeat_any: repeat tokens of the prompt; random: random tokens; "
            "length: a prefix of texts that are long enough for every level; random_length: only random tokens"
        ),
    ]
    levels: Annotated[
        Levels,
        Option("fractions such as 0,0.5,1, or lengths such as 16,64,256; default: as in the paper", parse_levels),
    ] = None
    out: Annotated[str | Path | None, Option("run folder: one scan per level, and the joined table")] = None
    metrics: Annotated[
        str | Sequence[str | Metric], Option("names from `layerwise scan --metrics list`; none that needs views")
    ] = "prompt_entropy,prompt_entropy_normalized"
    engine: ScanEngine = "local"
    threads: Threads = None
    allow_missing: AllowMissing = 0
    progress: Progress = False

    def scan_settings(self) -> ScanSettings:
        """The settings of the scan at each level."""
        return ScanSettings(**{spec.name: getattr(self, spec.name) for spec in option_specs(MeasureOptions)})


OPTIONS = StressOptions

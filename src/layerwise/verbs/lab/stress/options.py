"""stress: scan increasingly distorted prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.core.checks import require_number, split_choices
from layerwise.core.options import Option, require_valid
from layerwise.engines.options import AllowMissing, Engine, Progress, Threads
from layerwise.models.spec import BatchTokens, Layers, MaxLength, Norms, Poolings, Rows, Seed, TokenChoices
from layerwise.verbs.scan.options import SETTINGS, Entropy, ScanOptions, ShardSize, State

StressKind = Literal["repeat_one", "repeat_any", "random", "length", "random_length"]
Levels = str | Sequence[float] | None


def parse_levels(name: str, levels: Levels) -> list[float]:
    """Levels as numbers, from a list or a string such as 0,0.5,1."""
    parts = split_choices(name, levels) if isinstance(levels, str) else levels or ()
    return [require_number("a level", level, f"--{name}") for level in parts]


@dataclass(frozen=True, kw_only=True)
class StressOptions:
    """The options of `stress`."""

    kind: Annotated[
        StressKind,
        Option(
            "repeat_one: repeat one token; repeat_any: repeat tokens of the prompt; random: random tokens; "
            "length: a prefix; random_length: only random tokens"
        ),
    ]
    levels: Annotated[
        Levels,
        Option("fractions such as 0,0.5,1, or lengths such as 16,64,256; default: as in the paper", parse_levels),
    ] = None
    out: Annotated[str | Path | None, Option("run folder: one scan per level, and the joined table")] = None
    metrics: Annotated[str | Sequence[Any], Option("names from `layerwise scan --metrics list`")] = (
        "prompt_entropy,prompt_entropy_normalized"
    )
    rows: Rows = "raw"
    layers: Layers = "all"
    norm: Norms = "raw"
    tokens: TokenChoices = "all"
    pooling: Poolings = "mean"
    max_length: MaxLength = None
    batch_tokens: BatchTokens = 4096
    shard_size: ShardSize = 1024
    seed: Seed = 0
    state: State = "auto"
    entropy: Entropy = "auto"
    engine: Engine = "local"
    threads: Threads = None
    allow_missing: AllowMissing = 0
    progress: Progress = False

    def __post_init__(self) -> None:
        require_valid(self)

    def scan_options(self) -> ScanOptions:
        """The settings of the scan at each level."""
        return ScanOptions(**{name: getattr(self, name) for name in SETTINGS if hasattr(self, name)})


OPTIONS = StressOptions

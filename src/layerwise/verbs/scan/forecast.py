"""The forecast: cost of a scan before any weights are loaded; raises if it does not fit into memory."""

import math
from dataclasses import dataclass

import psutil

from layerwise.core.errors import TooLarge
from layerwise.core.progress import in_words
from layerwise.engines.merging import states_in_memory
from layerwise.runs.summary import format_bytes
from layerwise.verbs.scan.plan import ScanPlan

# Peak activations of a block, in copies of the hidden states (attention and MLP).
ACTIVATION_COPIES = 16


@dataclass(frozen=True)
class Streaming:
    """What a scan takes whose blocks are read from disk one by one.

    Args:
        block_bytes: size of the blocks that are read.
        reads: how often each of them is read: once per shard, or more if the hidden states of a shard need several
            rounds.
        kept_bytes: hidden states between two blocks that are kept in memory.
        scratch_bytes: those that are kept on disk.
    """

    block_bytes: int
    reads: int
    kept_bytes: int
    scratch_bytes: int

    def lines(self) -> list[str]:
        how_often = "once" if self.reads == 1 else f"{self.reads:,} times; a larger --shard-size reads them less often"
        return [
            f"blocks           {format_bytes(self.block_bytes)}, read {how_often}",
            f"hidden states    {format_bytes(self.kept_bytes)} in memory, {format_bytes(self.scratch_bytes)} in files",
        ]


@dataclass(frozen=True)
class Forecast:
    """What a scan will take: forward passes, tokens, floating-point operations and memory.

    Args:
        prompts: number of examples.
        is_partial: whether counting stopped before the end of the data.
        forwards: forward passes, views included.
        tokens: estimated number of tokens.
        flops: estimated floating-point operations.
        weight_bytes: memory of the weights; of a streamed model all outside the blocks, and one block.
        state_bytes: memory of the accumulators of all layers.
        states: how many of them are in memory at most.
        state: how sums over the data are kept: exact, float32 or a sketch.
        activation_bytes: memory of one batch in flight.
        memory_bytes: memory that is available.
        seconds: predicted seconds on this machine, without loading the model; None if nothing was timed.
        streaming: what a streamed model is read with; None for other models.
    """

    prompts: int
    is_partial: bool  # counting stopped before the end
    forwards: int
    tokens: int
    flops: float
    weight_bytes: int
    state_bytes: int
    states: int  # in memory at most: merged ones, and that of the current shard
    state: str  # how sums are stored
    activation_bytes: int
    memory_bytes: int
    seconds: float | None = None
    streaming: Streaming | None = None

    @property
    def peak_bytes(self) -> int:
        """Weights, activations of one batch, states, and what is kept between two blocks."""
        kept = self.streaming.kept_bytes if self.streaming else 0
        return self.weight_bytes + kept + self.activation_bytes + self.states * self.state_bytes

    def lines(self) -> list[str]:
        """The forecast as text, one line per quantity."""
        suffix = " or more (the numbers below are for this many)" if self.is_partial else ""
        return [
            f"prompts          {self.prompts:,}{suffix}",
            f"forward passes   {self.forwards:,} ({self.forwards // max(1, self.prompts) - 1} views per prompt)",
            f"tokens           about {self.tokens:,}",
            f"operations       about {self.flops:.2e} FLOP",
            f"weights          {format_bytes(self.weight_bytes)}{' at a time' if self.streaming else ''}",
            *(self.streaming.lines() if self.streaming else []),
            f"state            {format_bytes(self.state_bytes)} at most, for all layers ({self.state})",
            f"                 up to {self.states} of them in memory",
            f"peak memory      {format_bytes(self.peak_bytes)} of {format_bytes(self.memory_bytes)} available",
            *([] if self.seconds is None else [f"time             about {in_words(self.seconds)}, without loading"]),
        ]

    def require_fit(self) -> None:
        """Raises TooLarge if the scan does not fit into memory."""
        if self.peak_bytes > self.memory_bytes:
            stream = "" if self.streaming else "--stream (one block in memory at a time), "
            raise TooLarge(
                f"this scan needs about {format_bytes(self.peak_bytes)} (weights {format_bytes(self.weight_bytes)}, "
                f"{self.states} states of {format_bytes(self.state_bytes)}), but {format_bytes(self.memory_bytes)} are "
                "available. "
                "Try fewer layers (--layers 25%,50%,75%,last), --metrics prompt_entropy,curvature, --state "
                f"sketch:256, {stream}or --dtype bfloat16"
            )


def make_forecast(
    plan: ScanPlan,
    *,
    width: int,
    parameters: int,
    weight_bytes: int,
    prompts: int,
    is_partial: bool,
    mean_length: float,
    streaming: Streaming | None = None,
) -> Forecast:
    """Estimates cost from the plan, the model's shape, and the number and length of prompts."""
    forwards = prompts * (1 + plan.views)
    tokens = round(forwards * mean_length)
    state_bytes, shards = plan.state_bytes(width, prompts), math.ceil(prompts / plan.shard_size)
    depth_fraction = max(plan.layers) / plan.depth  # blocks after the deepest layer are not run
    return Forecast(
        prompts=prompts,
        is_partial=is_partial,
        forwards=forwards,
        tokens=tokens,
        flops=2.0 * parameters * depth_fraction * tokens,
        weight_bytes=weight_bytes,
        state_bytes=state_bytes,
        states=1 + states_in_memory(shards, state_bytes),
        state=plan.state,
        activation_bytes=ACTIVATION_COPIES * plan.batch_tokens * width * 4,
        memory_bytes=psutil.virtual_memory().available,
        streaming=streaming,
    )

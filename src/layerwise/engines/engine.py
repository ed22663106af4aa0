"""What every engine does: run all shards, and merge their states."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.shards import ItemT, ProgressCallback, ShardFunction, StateT, no_report


class Engine(Protocol):
    """Runs all shards and merges their states along a fixed tree. `identity` identifies the model."""

    @property
    def identity(self) -> Any: ...
    def run_shards(
        self,
        shards: Iterable[Sequence[ItemT]],
        work: ShardFunction[StateT],
        checkpoint: Checkpoint[StateT],
        *,
        allow_missing: int = 0,
        report: ProgressCallback = no_report,
    ) -> StateT: ...

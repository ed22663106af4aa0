"""The engine inside a distributed training: each process computes some of the shards, and all merge all of them.

States are merged along the same tree as in one process, so the result has the same bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch.distributed as dist

from layerwise.engines.checkpoints import Checkpoint, leaf
from layerwise.engines.merging import MergeTree, require_examples
from layerwise.engines.shards import ItemT, ProgressCallback, ShardFunction, StateT, no_report

ValueT = TypeVar("ValueT")


def is_distributed() -> bool:
    """True in a process group of more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first_process() -> bool:
    return not is_distributed() or dist.get_rank() == 0


def agreed(value: ValueT) -> ValueT:
    """The value of the first process, in all of them: what depends on clocks or files may differ between processes."""
    if not is_distributed():
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


@dataclass(frozen=True)
class DistributedEngine:
    """Runs every n-th shard in each of n processes that hold the same model."""

    model: Any
    identity: Any

    def run_shards(
        self,
        shards: Iterable[Sequence[ItemT]],
        work: ShardFunction[StateT],
        checkpoint: Checkpoint[StateT],
        *,
        allow_missing: int = 0,
        report: ProgressCallback = no_report,
    ) -> StateT:
        """The state of all shards, in every process. It writes to the folder of the checkpoint where there is one.

        An error of one process is raised in all of them, so that none waits for the others.
        """
        rank, processes = dist.get_rank(), dist.get_world_size()
        own: dict[int, tuple[bytes, Mapping[str, bytes]]] = {}
        error: Exception | None = None
        try:
            for number, shard in enumerate(shards):
                if number % processes == rank:
                    state, files = work(self.model, number, shard, report)
                    own[number] = state.dump(), files
        except Exception as raised:
            error = raised
        gathered: list[Any] = [None] * processes
        dist.all_gather_object(gathered, (own, error))
        for _, raised_there in gathered:
            if raised_there is not None:
                raise raised_there
        computed = {number: result for results, _ in gathered for number, result in results.items()}
        require_examples(len(computed))
        tree = MergeTree(replace(checkpoint, folder=None))
        with closing(tree):
            for number in sorted(computed):
                dump, files = computed[number]
                if checkpoint.folder is not None:
                    for name, data in files.items():
                        checkpoint.folder.write(name, data)
                tree.add(leaf(number), checkpoint.parse(dump))
            merged = tree.finish()
        checkpoint.finish(merged, len(computed))
        return merged

"""The local engine: runs shards one by one in this process, and calls that need no model in a process pool."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any

from layerwise.engines.checkpoints import Checkpoint, leaf, was_made_from
from layerwise.engines.failing_items import Failure, attempt, exclude_items, find_failing_items
from layerwise.engines.merging import (
    MergeTree,
    ShardWalk,
    finished_state,
    intact_nodes,
    require_examples,
    require_missing_allowed,
)
from layerwise.engines.shards import (
    ItemT,
    ProgressCallback,
    ResultT,
    ShardFunction,
    ShardResult,
    StateT,
    no_report,
)


@dataclass(frozen=True)
class LocalEngine:
    """Runs all work in this process."""

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
        """The state of all shards. The same plan gives bit-identical results, resumed or not."""
        if (state := finished_state(checkpoint, shards, allow_missing)) is not None:
            return state
        stored = intact_nodes(checkpoint)
        missing = [example for ids in stored.values() for example in ids]
        require_missing_allowed(missing, allow_missing)
        walk = ShardWalk(stored, partial(was_made_from, checkpoint))
        tree = MergeTree(checkpoint)
        with closing(tree):
            for number, shard in walk.remaining(shards, tree.add_stored, report):
                try:
                    state, files = (
                        self._run_without_failing(work, number, shard, report, len(missing), allow_missing)
                        if allow_missing
                        else work(self.model, number, shard, report)
                    )
                except KeyboardInterrupt:
                    tree.save(force=True)  # the shards before this one are whole
                    raise
                if checkpoint.folder is not None:
                    for name, data in files.items():
                        checkpoint.folder.write(name, data)
                missing += state.missing
                tree.add(leaf(number), state)
                tree.save()
            require_examples(walk.shards)
            state = tree.finish()
        walk.require_made_from_all(state)
        require_missing_allowed(state.missing, allow_missing)
        checkpoint.finish(state, walk.shards)
        return state

    def _run_without_failing(
        self,
        work: ShardFunction[StateT],
        number: int,
        shard: Sequence[ItemT],
        report: ProgressCallback,
        missing_so_far: int,
        allow_missing: int,
    ) -> ShardResult[StateT]:
        """The result of a shard, without the items that fail."""
        result = attempt(work, self.model, number, shard, report)
        if not isinstance(result, Failure):
            return result

        def failure_reason(items: Sequence[ItemT]) -> str | None:
            result = attempt(work, self.model, number, items, no_report)
            return result.why if isinstance(result, Failure) else None

        failing = find_failing_items(shard, failure_reason, missing_so_far, allow_missing)
        state, files = work(self.model, number, exclude_items(shard, failing), no_report)
        state.record_missing(failing)
        return state, files


@dataclass(frozen=True)
class LocalProcesses:
    """A pool of processes on this machine."""

    pool: ProcessPoolExecutor
    parallelism: int

    def results(self, function: Callable[..., ResultT], calls: Iterable[tuple[Any, ...]]) -> Iterator[ResultT]:
        for future in as_completed([self.pool.submit(function, *call) for call in calls]):
            yield future.result()


@contextmanager
def local_processes(count: int) -> Iterator[LocalProcesses]:
    """A pool of `count` processes, started on first use; none if it is 0."""
    spawn = get_context("spawn")
    child_end, parent_end = spawn.Pipe(
        duplex=False
    )  # the only writing end is ours, so it is closed when this process ends
    with child_end, parent_end, ProcessPoolExecutor(max(1, count), spawn, start_process, (child_end,)) as pool:
        try:
            yield LocalProcesses(pool, count)
        except BaseException:  # such as an interrupt: their results are no longer needed
            parent_end.close()
            raise


def start_process(from_parent: Connection) -> None:
    """Initializes a process: it exits with its parent, and uses one thread."""
    Thread(target=exit_with_parent, args=(from_parent,), daemon=True).start()
    use_one_thread()


def exit_with_parent(from_parent: Connection) -> None:
    """Exits when the parent's end of the pipe is closed, even if the parent was killed."""
    wait([from_parent])
    os._exit(1)


def use_one_thread() -> None:
    """Limits this process to one thread, since processes share the cores. Libraries loaded later read the
    environment."""
    import numpy  # noqa: F401  loads its BLAS first, which reads the environment only at import
    import torch
    from threadpoolctl import threadpool_limits

    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    threadpool_limits(1)
    torch.set_num_threads(1)

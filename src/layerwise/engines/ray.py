"""The Ray engine: model actors on one machine or many nodes run the shards; the driver merges them in order.

The driver reads the data, splits it into shards and assigns each to a free worker. The worker writes the shard's state
to the run folder and reports back. The driver merges states in order as they arrive. Ray may lose a worker at any time,
and a shard may run twice: its file always has the same name and bytes, so neither matters.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import RunError
from layerwise.engines.ray_cluster import joined
from layerwise.engines.ray_run import ShardRun
from layerwise.engines.ray_workers import WorkerPool, cause_of, first_line, in_one_thread
from layerwise.engines.shards import AnswerT, Checkpoint, ItemT, Prefix, Report, StateT, Work, silent
from layerwise.options.engine import Cluster


@dataclass(frozen=True)
class RayEngine:
    """Runs shards on a pool of workers that persists between runs, so that the model is loaded only once."""

    pool: WorkerPool

    @property
    def identity(self) -> Any:
        return self.pool.identity

    def run_shards(
        self,
        shards: Iterable[Sequence[ItemT]],
        work: Work[StateT],
        checkpoint: Checkpoint[StateT],
        *,
        allow_missing: int = 0,
        report: Report = silent,
    ) -> StateT:
        """The state of all shards, merged in order; bit-identical to the local engine."""
        assert checkpoint.folder is not None, "the caller must pass a folder"
        run: ShardRun[StateT, ItemT] = ShardRun(
            self.pool, checkpoint.folder, self.pool.ray.put(work), Prefix(checkpoint, allow_missing), report
        )
        try:
            return run.go(shards)
        except BaseException:
            for worker in [worker for worker in self.pool.workers if worker.shards]:
                worker.shards.clear()
                self.pool.dismiss(worker)  # its result is no longer needed; the next run gets a free worker
            raise

    @property
    def width(self) -> int:
        return max(1, int(self.pool.ray.cluster_resources().get("CPU", 1)))

    def answers(self, function: Callable[..., AnswerT], calls: Iterable[tuple[Any, ...]]) -> Iterator[AnswerT]:
        """Runs calls that need no model on all CPUs, including those of the idle workers.

        Calls therefore request no CPU, and at most one call per CPU runs at a time. Ray retries a call whose process
        dies.
        """
        remote = self.pool.ray.remote(in_one_thread).options(num_cpus=0, scheduling_strategy="SPREAD")
        pending, width = deque(calls), self.width
        running: list[Any] = []
        while pending or running:
            while pending and len(running) < width:
                running.append(remote.remote(function, *pending.popleft()))
            ready, running = self.pool.ray.wait(running, num_returns=1)
            try:
                yield self.pool.ray.get(ready[0])
            except self.pool.lost as error:
                raise RunError(f"worker processes keep dying: {first_line(error)}") from None
            except self.pool.ray.exceptions.RayTaskError as error:
                raise cause_of(error) from None


@contextmanager
def open_ray(cluster: Cluster, load: Callable[[], Any], identify: Callable[[Any], Any]) -> Iterator[RayEngine]:
    """Opens an engine whose workers hold the object that `load` returns."""
    with joined(cluster):
        pool = WorkerPool(cluster)
        try:
            pool.open(load, identify)
            yield RayEngine(pool)
        finally:
            pool.close()

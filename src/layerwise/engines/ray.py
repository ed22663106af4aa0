"""The Ray engine: model actors on one machine or many nodes run the shards and merge their states along the tree.

The driver reads the data, splits it into shards and assigns each to a free worker. The worker writes the shard's state
to the run folder and reports back. Two states that belong together are merged by any worker; the driver reads only
the last one. Ray may lose a worker at any time, and a shard may run or be merged twice: its file always has the
same name and bytes, so neither matters.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import RunError
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.merging import finished_state
from layerwise.engines.options import Cluster
from layerwise.engines.ray_cluster import connected
from layerwise.engines.ray_run import ShardRun
from layerwise.engines.ray_workers import WorkerPool, first_line, run_in_one_thread, unwrap_error
from layerwise.engines.shards import (
    ItemT,
    ProgressCallback,
    ResultT,
    ShardFunction,
    StateT,
    no_report,
)


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
        work: ShardFunction[StateT],
        checkpoint: Checkpoint[StateT],
        *,
        allow_missing: int = 0,
        report: ProgressCallback = no_report,
    ) -> StateT:
        """The state of all shards; bit-identical to the local engine."""
        if (state := finished_state(checkpoint, shards, allow_missing)) is not None:
            return state
        run: ShardRun[StateT, ItemT] = ShardRun(self.pool, checkpoint, self.pool.ray.put(work), allow_missing, report)
        try:
            return run.run(shards)
        except BaseException:
            for worker in [worker for worker in self.pool.workers if worker.shards]:
                worker.shards.clear()
                self.pool.replace_worker(worker)  # its result is no longer needed; the next run gets a free worker
            raise

    @property
    def parallelism(self) -> int:
        return max(1, int(self.pool.ray.cluster_resources().get("CPU", 1)))

    def results(self, function: Callable[..., ResultT], calls: Iterable[tuple[Any, ...]]) -> Iterator[ResultT]:
        """Runs calls that need no model on all CPUs, including those of the idle workers.

        Calls therefore request no CPU, and at most one call per CPU runs at a time. Ray retries a call whose process
        dies.
        """
        remote = self.pool.ray.remote(run_in_one_thread).options(num_cpus=0, scheduling_strategy="SPREAD")
        pending, parallelism = deque(calls), self.parallelism
        running: list[Any] = []
        while pending or running:
            while pending and len(running) < parallelism:
                running.append(remote.remote(function, *pending.popleft()))
            ready, running = self.pool.ray.wait(running, num_returns=1)
            try:
                yield self.pool.ray.get(ready[0])
            except self.pool.lost_worker_errors as error:
                raise RunError(f"worker processes keep dying: {first_line(error)}") from None
            except self.pool.ray.exceptions.RayTaskError as error:
                raise unwrap_error(error) from None


@contextmanager
def open_ray(cluster: Cluster, load: Callable[[], Any], identify: Callable[[Any], Any]) -> Iterator[RayEngine]:
    """Opens an engine whose workers hold the object that `load` returns."""
    with connected(cluster):
        pool = WorkerPool(cluster)
        try:
            pool.open(load, identify)
            yield RayEngine(pool)
        finally:
            pool.close()

"""The Ray engine: shards done by model actors on one machine or many nodes, merged here in their order.

The driver reads the data, cuts shards and gives each to a worker that is free; the worker writes the shard's state
into the run folder and says that it is done; the driver merges states as soon as they are next in line. Ray may lose a
worker at any moment, and a shard may be done twice: its file has one name and always the same bytes, so that neither
matters.
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
    """Does the work of shards with a pool of workers that stay from run to run, so that the model is loaded once."""

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
        """The merged state of all shards, merged in their order: the bits of the local engine."""
        assert checkpoint.folder is not None, "the caller sees to it that there is a folder"
        run: ShardRun[StateT, ItemT] = ShardRun(
            self.pool, checkpoint.folder, self.pool.ray.put(work), Prefix(checkpoint, allow_missing), report
        )
        try:
            return run.go(shards)
        except BaseException:
            for worker in [worker for worker in self.pool.workers if worker.shards]:
                worker.shards.clear()
                self.pool.dismiss(worker)  # it works on what nobody waits for; the next run gets a worker that is free
            raise

    @property
    def width(self) -> int:
        return max(1, int(self.pool.ray.cluster_resources().get("CPU", 1)))

    def answers(self, function: Callable[..., AnswerT], calls: Iterable[tuple[Any, ...]]) -> Iterator[AnswerT]:
        """Calls without the model, on all CPUs: those of the workers too, who have nothing to do meanwhile.

        So a call asks for no CPU, and we see to it that there are no more calls than CPUs. Ray repeats one whose
        process dies.
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
                raise RunError(f"processes die again and again: {first_line(error)}") from None
            except self.pool.ray.exceptions.RayTaskError as error:
                raise cause_of(error) from None


@contextmanager
def open_ray(cluster: Cluster, load: Callable[[], Any], identify: Callable[[Any], Any]) -> Iterator[RayEngine]:
    """An engine whose workers hold what `load` makes."""
    with joined(cluster):
        pool = WorkerPool(cluster)
        try:
            pool.open(load, identify)
            yield RayEngine(pool)
        finally:
            pool.close()

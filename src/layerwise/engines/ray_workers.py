"""Ray workers: processes that hold the model. They are started, compared with each other, and replaced if they die."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from layerwise.core.errors import LayerwiseError, RunError
from layerwise.engines.checkpoints import Checkpoint, leaf
from layerwise.engines.failing_items import Failure, attempt
from layerwise.engines.options import Cluster
from layerwise.engines.ray_cluster import worker_count
from layerwise.engines.shards import ItemT, ResultT, ShardFunction, StateT, no_report, torch_threads

MAX_WORKER_DEATHS = 3  # worker deaths on one shard before its examples are suspected
SECONDS_BEFORE_NOTICE = 30.0  # how long to wait for the first worker before printing a notice


@dataclass(frozen=True)
class ShardDone:
    """Reports that the files of a shard are written."""

    items: int
    tokens: int


class Worker:
    """A separate process that holds the model. `open` loads it, so that loading errors reach the driver."""

    def __init__(self, load: Callable[[], Any], identify: Callable[[Any], Any]) -> None:
        self.load, self.identify, self.model = load, identify, None

    def open(self) -> Any:
        self.model = self.load()
        return self.identify(self.model)

    def run(
        self,
        work: ShardFunction[StateT],
        checkpoint: Checkpoint[StateT],
        number: int,
        items: Sequence[ItemT],
        excluded: Sequence[ItemT],
    ) -> ShardDone | Failure:
        tokens: list[int] = []
        result = attempt(work, self.model, number, items, lambda _, more: tokens.append(more))
        if isinstance(result, Failure):
            return result
        state, files = result
        state.record_missing(excluded)
        for name, data in files.items():
            checkpoint.files.write(name, data)
        checkpoint.write(leaf(number), state)
        return ShardDone(len(items), sum(tokens))

    def call(self, threads: int, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """Calls a function that needs no model, such as one that merges states."""
        with torch_threads(threads):
            return function(*arguments)

    def try_items(self, work: ShardFunction[StateT], number: int, items: Sequence[ItemT]) -> Failure | None:
        result = attempt(work, self.model, number, items, no_report)
        return result if isinstance(result, Failure) else None


@dataclass(eq=False)
class WorkerHandle:
    """The driver's view of a worker: its actor, and its assigned shards, the running one first."""

    actor: Any
    shards: deque[int] = field(default_factory=deque)


def run_in_one_thread(function: Callable[..., ResultT], *call: Any) -> ResultT:
    """Calls the function with one thread, since there are as many such processes as CPUs."""
    from threadpoolctl import threadpool_limits

    with torch_threads(1), threadpool_limits(1):
        return function(*call)


def unwrap_error(error: Any) -> Exception:
    """The original error of a worker outside the shard function: while loading the model or writing a file."""
    cause = error.cause
    if isinstance(cause, LayerwiseError):
        return cause
    return RunError(f"a worker failed: {type(cause).__name__}: {cause}. Fix the cause and run the same command again")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class WorkerPool:
    """A pool of workers that persists between runs, so that the model is loaded once; dead workers are replaced."""

    def __init__(self, cluster: Cluster) -> None:
        self.ray, self.cluster = import_module("ray"), cluster
        names = ("RayActorError", "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError")
        self.lost_worker_errors = tuple(getattr(self.ray.exceptions, name) for name in names)
        self.size = worker_count(cluster)
        self.workers: list[WorkerHandle] = []
        self.loading: dict[Any, WorkerHandle] = {}
        self.deaths_while_loading = 0
        self.identity: Any = None

    def open(self, load: Callable[[], Any], identify: Callable[[Any], Any]) -> None:
        """Starts the workers and waits for the first; the others join later."""
        cpus, gpus = self.cluster.cpus_per_worker, self.cluster.gpus_per_worker
        actor_class = self.ray.remote(Worker).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self.make_actor: Callable[[], Any] = lambda: actor_class.remote(load, identify)
        for _ in range(self.size):
            self.start_worker()
        requirement = f"a worker needs {cpus:g} CPUs and {gpus:g} GPUs"
        while self.identity is None:
            ready, _ = self.ray.wait(list(self.loading), timeout=SECONDS_BEFORE_NOTICE)
            if not ready:
                print(f"layerwise: waiting for a first worker on the cluster; {requirement}", file=sys.stderr)
            for ref in ready:
                self.register_worker(ref)

    def start_worker(self) -> None:
        worker = WorkerHandle(self.make_actor())
        self.loading[worker.actor.open.remote()] = worker

    def register_worker(self, ref: Any) -> None:
        """Registers a worker that has loaded its model, which must be the same as that of the others."""
        worker = self.loading.pop(ref)
        try:
            identity = self.ray.get(ref)
        except self.lost_worker_errors as error:
            self.deaths_while_loading += 1
            if self.deaths_while_loading > 2 * self.size + MAX_WORKER_DEATHS:
                problem = f"{self.deaths_while_loading} workers in a row died while loading the model"
                raise RunError(f"{problem}: {first_line(error)}") from None
            self.start_worker()
            return
        except self.ray.exceptions.RayTaskError as error:
            raise unwrap_error(error) from None
        self.deaths_while_loading = 0
        self.identity = self.identity or identity
        if identity != self.identity:
            problem = f"two workers loaded different models: {self.identity} and {identity}"
            raise RunError(f"{problem}; put the same files on every node, and use the same kind of node everywhere")
        self.workers.append(worker)

    def replace_worker(self, worker: WorkerHandle) -> None:
        """Ends a worker that is dead or no longer trusted, and starts a replacement."""
        self.ray.kill(worker.actor)
        self.workers.remove(worker)
        self.start_worker()

    def close(self) -> None:
        for worker in [*self.workers, *self.loading.values()]:
            self.ray.kill(worker.actor)

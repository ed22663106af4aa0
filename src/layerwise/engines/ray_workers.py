"""Ray workers: processes that hold the model. They are started, compared with each other, and replaced if they die."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from layerwise.core.errors import LayerwiseError, RunError
from layerwise.core.files import Folder
from layerwise.engines.poison import Trouble, attempt
from layerwise.engines.ray_cluster import workers_of
from layerwise.engines.shards import AnswerT, ItemT, StateT, Work, silent, threads
from layerwise.options.engine import Cluster
from layerwise.runs.folder import shard_file

DEATHS_AT_MOST = 3  # worker deaths on one shard before its examples are suspected
SECONDS_BEFORE_A_WORD = 30.0  # how long to wait for the first worker before printing a notice


@dataclass(frozen=True)
class Done:
    """Reports that the files of a shard are written."""

    items: int
    tokens: int


class Worker:
    """A separate process that holds the model. `open` loads it, so that loading errors reach the driver."""

    def __init__(self, load: Callable[[], Any], identify: Callable[[Any], Any]) -> None:
        self.load, self.identify, self.tool = load, identify, None

    def open(self) -> Any:
        self.tool = self.load()
        return self.identify(self.tool)

    def run(
        self, work: Work[StateT], folder: Folder, number: int, items: Sequence[ItemT], left_out: Sequence[ItemT]
    ) -> Done | Trouble:
        tokens: list[int] = []
        result = attempt(work, self.tool, number, items, lambda _, more: tokens.append(more))
        if isinstance(result, Trouble):
            return result
        state, files = result
        state.leave_out(left_out)
        for name, data in files.items():
            folder.write(name, data)
        folder.write(shard_file(number), state.dump())
        return Done(len(items), sum(tokens))

    def trial(self, work: Work[StateT], number: int, items: Sequence[ItemT]) -> Trouble | None:
        result = attempt(work, self.tool, number, items, silent)
        return result if isinstance(result, Trouble) else None


@dataclass(eq=False)
class WorkerHandle:
    """The driver's view of a worker: its actor, and its assigned shards, the running one first."""

    actor: Any
    shards: deque[int] = field(default_factory=deque)


def in_one_thread(function: Callable[..., AnswerT], *call: Any) -> AnswerT:
    """Calls the function with one thread, since there are as many such processes as CPUs."""
    from threadpoolctl import threadpool_limits

    with threads(1), threadpool_limits(1):
        return function(*call)


def cause_of(error: Any) -> Exception:
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
        self.lost = tuple(getattr(self.ray.exceptions, name) for name in names)
        self.size = workers_of(cluster)
        self.workers: list[WorkerHandle] = []
        self.opening: dict[Any, WorkerHandle] = {}
        self.deaths_in_opening = 0
        self.identity: Any = None

    def open(self, load: Callable[[], Any], identify: Callable[[Any], Any]) -> None:
        """Starts the workers and waits for the first; the others join later."""
        cpus, gpus = self.cluster.cpus_per_worker, self.cluster.gpus_per_worker
        actor_class = self.ray.remote(Worker).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self.start: Callable[[], Any] = lambda: actor_class.remote(load, identify)
        for _ in range(self.size):
            self.start_worker()
        requirement = f"a worker needs {cpus:g} CPUs and {gpus:g} GPUs"
        while self.identity is None:
            ready, _ = self.ray.wait(list(self.opening), timeout=SECONDS_BEFORE_A_WORD)
            if not ready:
                print(f"layerwise: waiting for a first worker on the cluster; {requirement}", file=sys.stderr)
            for ref in ready:
                self.welcome(ref)

    def start_worker(self) -> None:
        worker = WorkerHandle(self.start())
        self.opening[worker.actor.open.remote()] = worker

    def welcome(self, ref: Any) -> None:
        """Registers a worker that has loaded its model, which must be the same as that of the others."""
        worker = self.opening.pop(ref)
        try:
            identity = self.ray.get(ref)
        except self.lost as error:
            self.deaths_in_opening += 1
            if self.deaths_in_opening > 2 * self.size + DEATHS_AT_MOST:
                problem = f"{self.deaths_in_opening} workers in a row died while loading the model"
                raise RunError(f"{problem}: {first_line(error)}") from None
            self.start_worker()
            return
        except self.ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        self.deaths_in_opening = 0
        self.identity = self.identity or identity
        if identity != self.identity:
            problem = f"two workers loaded different models: {self.identity} and {identity}"
            raise RunError(f"{problem}; put the same files on every node, and use the same kind of node everywhere")
        self.workers.append(worker)

    def dismiss(self, worker: WorkerHandle) -> None:
        """Ends a worker that is dead or no longer trusted, and starts a replacement."""
        self.ray.kill(worker.actor)
        self.workers.remove(worker)
        self.start_worker()

    def close(self) -> None:
        for worker in [*self.workers, *self.opening.values()]:
            self.ray.kill(worker.actor)

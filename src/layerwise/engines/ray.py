"""The Ray engine: shards done by model actors on one machine or many nodes, merged here in their order.

The driver reads the data, cuts shards and hands each to a worker that is free; the worker writes the shard's state
into the run folder and says that it is done; the driver merges states as soon as they are next in line. Ray may lose a
worker at any moment, and a shard may be done twice: its file has one name and always the same bytes, so that neither
matters.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import Any, Generic

from layerwise.core.errors import InputError, LayerwiseError, MergeError, MissingExtra, RunError
from layerwise.core.files import Folder
from layerwise.engines.poison import Trouble, attempt, find_poison, without
from layerwise.engines.shards import AnswerT, Checkpoint, ItemT, Prefix, Report, StateT, Work, silent, threads
from layerwise.options.engine import Cluster as Cluster
from layerwise.runs.folder import SHARD_FILE, SHARDS, shard_file

DEATHS_AT_MOST = 3  # of workers on one shard, before its examples are suspected
DEATHS_THAT_PROVE = 2  # of workers on a single example of such a shard: one may be an accident
IN_HAND = 2  # shards given to a worker: the one it works on and the next, so that it never waits for the driver
AHEAD = 8  # shards for each worker that may be done before the next in line is
# No reports to Ray's makers, no advice about versions to come, and workers that do not stand back behind all others.
RAY_HABITS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0"}
SECONDS_BEFORE_A_WORD = 30.0  # how long to wait for a first worker without saying so


@dataclass(frozen=True)
class Done:
    """A worker's word that a shard's files are in their place."""

    items: int
    tokens: int


class Worker:
    """A process of its own that holds the tool. The model is loaded by `open`, whose errors reach the driver whole."""

    def __init__(self, load: Callable[[], Any], identify: Callable[[Any], Any]) -> None:
        self.load, self.identify, self.tool = load, identify, None

    def open(self) -> Any:
        self.tool = self.load()
        return self.identify(self.tool)

    def run(
        self, work: Work[StateT], folder: Folder, number: int, items: Sequence[ItemT], left_out: Sequence[ItemT]
    ) -> Done | Trouble:
        tokens: list[int] = []
        tried = attempt(work, self.tool, number, items, lambda _, more: tokens.append(more))
        if isinstance(tried, Trouble):
            return tried
        state, files = tried
        state.leave_out(left_out)
        for name, data in files.items():
            folder.write(name, data)
        folder.write(shard_file(number), state.dump())
        return Done(len(items), sum(tokens))

    def trial(self, work: Work[StateT], number: int, items: Sequence[ItemT]) -> Trouble | None:
        tried = attempt(work, self.tool, number, items, silent)
        return tried if isinstance(tried, Trouble) else None


@dataclass(eq=False)
class Hand:
    """A worker as the driver sees it: its actor, and the shards that it was given, the one at work first."""

    actor: Any
    shards: deque[int] = field(default_factory=deque)


class RayEngine:
    """Workers that stay from run to run, so that the model is loaded once; those that die are replaced."""

    def __init__(self, cluster: Cluster) -> None:
        self.ray, self.cluster = import_module("ray"), cluster
        names = ("RayActorError", "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError")
        self.lost = tuple(getattr(self.ray.exceptions, name) for name in names)
        self.size = workers_of(cluster)
        self.hands: list[Hand] = []
        self.opening: dict[Any, Hand] = {}
        self.deaths_in_opening = 0
        self.identity: Any = None

    def open(self, load: Callable[[], Any], identify: Callable[[Any], Any]) -> None:
        """Starts the workers and waits for the first; the others join while it is at work."""
        cpus, gpus = self.cluster.cpus_per_worker, self.cluster.gpus_per_worker
        make = self.ray.remote(Worker).options(
            num_cpus=cpus, num_gpus=gpus, max_restarts=0, scheduling_strategy="SPREAD"
        )
        self.start: Callable[[], Any] = lambda: make.remote(load, identify)
        for _ in range(self.size):
            self.hire()
        told = f"a worker needs {cpus:g} CPUs and {gpus:g} GPUs"
        while self.identity is None:
            ready, _ = self.ray.wait(list(self.opening), timeout=SECONDS_BEFORE_A_WORD)
            if not ready:
                print(f"layerwise: waiting for a first worker on the cluster; {told}", file=sys.stderr)
            for ref in ready:
                self.welcome(ref)

    def hire(self) -> None:
        hand = Hand(self.start())
        self.opening[hand.actor.open.remote()] = hand

    def welcome(self, ref: Any) -> None:
        """Takes in a worker that has loaded its model, which must be the same as that of the others."""
        hand = self.opening.pop(ref)
        try:
            identity = self.ray.get(ref)
        except self.lost as error:
            self.deaths_in_opening += 1
            if self.deaths_in_opening > 2 * self.size + DEATHS_AT_MOST:
                told = f"workers die while they load the model, {self.deaths_in_opening} in a row"
                raise RunError(f"{told}: {first_line(error)}") from None
            self.hire()
            return
        except self.ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        self.deaths_in_opening = 0
        self.identity = self.identity or identity
        if identity != self.identity:
            told = f"two workers loaded different models: {self.identity} and {identity}"
            raise RunError(f"{told}; put the same files on every node, and use nodes of one kind")
        self.hands.append(hand)

    def dismiss(self, hand: Hand) -> None:
        """Ends a worker that is dead or not to be trusted, and hires another in its place."""
        self.ray.kill(hand.actor)
        self.hands.remove(hand)
        self.hire()

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
        run: Run[StateT, ItemT] = Run(
            self, checkpoint.folder, self.ray.put(work), Prefix(checkpoint, allow_missing), report
        )
        try:
            return run.go(shards)
        except BaseException:
            for hand in [hand for hand in self.hands if hand.shards]:
                hand.shards.clear()
                self.dismiss(hand)  # it works on what nobody waits for; the next run gets a worker that is free
            raise

    @property
    def width(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def answers(self, function: Callable[..., AnswerT], calls: Iterable[tuple[Any, ...]]) -> Iterator[AnswerT]:
        """Calls without the model, on all CPUs: those of the workers too, who have nothing to do meanwhile.

        So a call asks for no CPU, and we see to it that there are no more calls than CPUs. Ray repeats one whose
        process dies.
        """
        remote = self.ray.remote(in_one_thread).options(num_cpus=0, scheduling_strategy="SPREAD")
        waiting, width = deque(calls), self.width
        out: list[Any] = []
        while waiting or out:
            while waiting and len(out) < width:
                out.append(remote.remote(function, *waiting.popleft()))
            ready, out = self.ray.wait(out, num_returns=1)
            try:
                yield self.ray.get(ready[0])
            except self.lost as error:
                raise RunError(f"processes die again and again: {first_line(error)}") from None
            except self.ray.exceptions.RayTaskError as error:
                raise cause_of(error) from None

    def close(self) -> None:
        for hand in [*self.hands, *self.opening.values()]:
            self.ray.kill(hand.actor)


@dataclass
class Run(Generic[StateT, ItemT]):
    """One pass over the shards: which are out, which are done and wait for their turn, which are suspected."""

    engine: RayEngine
    folder: Folder
    work: Any  # in Ray's object store
    prefix: Prefix[StateT]
    report: Report
    items: dict[int, Sequence[ItemT]] = field(default_factory=dict)  # of shards that are not done
    left_out: dict[int, Sequence[ItemT]] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    again: deque[int] = field(default_factory=deque)
    suspected: deque[int] = field(default_factory=deque)
    out: dict[Any, tuple[Hand, int]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def go(self, shards: Iterable[Sequence[ItemT]]) -> StateT:
        waiting = self.unfinished(self.prefix.remaining(shards))
        while True:
            self.hand_out(waiting)
            self.merge()
            if not self.out and self.suspected:
                self.isolate(self.suspected.popleft())
            elif self.out or self.items or not self.engine.hands:
                self.listen()
            else:
                break
        state = self.prefix.finish()
        self.folder.clear(SHARDS, SHARD_FILE)
        return state

    def unfinished(self, remaining: Iterator[tuple[int, Sequence[ItemT]]]) -> Iterator[int]:
        """The shards still to do; those whose states an earlier run left in the folder are not done again."""
        there = set(self.folder.names("shards"))
        for number, items in remaining:
            if shard_file(number).partition("/")[2] in there and self.is_whole(number, items):
                self.done.add(number)
                self.merge()
                continue
            self.items[number] = items
            yield number

    def is_whole(self, number: int, items: Sequence[ItemT]) -> bool:
        try:
            state = self.read(number)
        except (InputError, MergeError):  # damaged, or of another run: done again
            return False
        return state.holds(len(items), sum(item.digest for item in items))

    def read(self, number: int) -> StateT:
        return self.prefix.checkpoint.parse(self.folder.read(shard_file(number)) or b"")

    def hand_out(self, waiting: Iterator[int]) -> None:
        """Gives every worker that has less than two shards another, as long as there are any."""
        for _ in range(IN_HAND):
            for hand in self.engine.hands:
                if len(hand.shards) >= IN_HAND:
                    continue
                if self.again:
                    number = self.again.popleft()
                elif self.prefix.seen - self.prefix.done >= AHEAD * self.engine.size + IN_HAND:
                    return
                elif (following := next(waiting, None)) is not None:
                    number = following
                else:
                    return
                poison = self.left_out.get(number, ())
                good = without(self.items[number], poison)
                ref = hand.actor.run.remote(self.work, self.folder, number, good, poison)
                hand.shards.append(number)
                self.out[ref] = hand, number

    def listen(self) -> None:
        """Waits until a worker has something to say, and acts on it."""
        ready, _ = self.engine.ray.wait([*self.out, *self.engine.opening], num_returns=1)
        for ref in ready:
            if ref in self.engine.opening:
                self.engine.welcome(ref)
            else:
                self.hear(ref)

    def hear(self, ref: Any) -> None:
        hand, number = self.out[ref]
        try:
            told = self.engine.ray.get(ref)
        except self.engine.lost:
            self.lose(hand)
            return
        except self.engine.ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        del self.out[ref]
        hand.shards.remove(number)
        if isinstance(told, Done):
            self.report(told.items, told.tokens)
            del self.items[number]
            self.done.add(number)
            return
        self.suspected.append(number)
        if not told.foreseen:
            self.lose(hand)

    def lose(self, hand: Hand) -> None:
        """A worker is gone: what it had goes to others; a shard that workers die of again and again is suspected."""
        for ref in [ref for ref, (other, _) in self.out.items() if other is hand]:
            del self.out[ref]
        for place, number in enumerate(hand.shards):
            self.deaths[number] = self.deaths.get(number, 0) + (place == 0)  # the others had not begun
            (self.suspected if self.deaths[number] >= DEATHS_AT_MOST else self.again).append(number)
        hand.shards.clear()
        self.engine.dismiss(hand)

    def isolate(self, number: int) -> None:
        """Finds the examples that cannot be computed. Nothing else is out, so every worker is free for it."""
        poison = find_poison(
            self.items[number], lambda items: self.trouble(number, items), self.missing, self.prefix.allow_missing
        )
        self.left_out[number], self.deaths[number] = poison, 0
        self.again.append(number)

    @property
    def missing(self) -> int:
        """Examples left out so far, in shards that are merged and in those that wait."""
        return self.prefix.missing + sum(len(items) for n, items in self.left_out.items() if n >= self.prefix.done)

    def trouble(self, number: int, items: Sequence[ItemT]) -> str | None:
        """What goes wrong with these items, or None."""
        why = ""
        for _ in range(DEATHS_THAT_PROVE if len(items) == 1 else 1):
            while not self.engine.hands:
                self.listen()
            hand = self.engine.hands[0]
            try:
                told = self.engine.ray.get(hand.actor.trial.remote(self.work, number, items))
            except self.engine.lost as error:
                why = f"the worker died ({first_line(error)})"
                self.engine.dismiss(hand)
                continue
            if told is None:
                return None
            if not told.foreseen:
                self.engine.dismiss(hand)
            return str(told.why)
        return why

    def merge(self) -> None:
        """Merges what is next in line; files that a checkpoint holds are deleted."""
        while self.prefix.done in self.done:
            number = self.prefix.done
            self.done.remove(number)
            before = self.prefix.checkpoint.held or 0
            if self.prefix.add(self.read(number)):
                self.folder.delete(shard_file(n) for n in range(before, number + 1))


def in_one_thread(function: Callable[..., AnswerT], *call: Any) -> AnswerT:
    """What the function answers; there are as many such processes as CPUs."""
    from threadpoolctl import threadpool_limits

    with threads(1), threadpool_limits(1):
        return function(*call)


def cause_of(error: Any) -> Exception:
    """An error that a worker met outside the shard's own work: in loading the model, or in writing a file."""
    cause = error.cause
    if isinstance(cause, LayerwiseError):
        return cause
    return RunError(f"a worker failed: {type(cause).__name__}: {cause}. Mend it and run the same command again")


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def workers_of(cluster: Cluster) -> int:
    """As many as were asked for, else as many as fit into the cluster that was joined."""
    if cluster.workers is not None:
        return cluster.workers
    resources = import_module("ray").cluster_resources()
    fits = [resources.get("CPU", 0) / cluster.cpus_per_worker]
    fits += [resources.get("GPU", 0) / cluster.gpus_per_worker] if cluster.gpus_per_worker else []
    return max(1, int(min(fits)))


@contextmanager
def open_ray(cluster: Cluster, load: Callable[[], Any], identify: Callable[[Any], Any]) -> Iterator[RayEngine]:
    """An engine whose workers hold what `load` makes."""
    with joined(cluster):
        engine = RayEngine(cluster)
        try:
            engine.open(load, identify)
            yield engine
        finally:
            engine.close()


@contextmanager
def joined(cluster: Cluster) -> Iterator[None]:
    """Inside, this process belongs to the cluster; Ray is left as it was found."""
    if find_spec("ray") is None:
        raise MissingExtra("the ray engine needs Ray: pip install 'layerwise[ray]'")
    for name, value in RAY_HABITS.items():
        os.environ.setdefault(name, value)
    ray = import_module("ray")
    if ray.is_initialized():
        yield
        return
    join(ray, cluster)
    try:
        yield
    finally:
        ray.shutdown()


def join(ray: Any, cluster: Cluster) -> None:
    """Joins a cluster, or starts one here that is large enough for the workers asked for."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if cluster.address is None and "RAY_ADDRESS" not in os.environ:
        wanted = ceil((cluster.workers or 1) * cluster.cpus_per_worker)
        options |= {"address": "local", "num_cpus": max(wanted, os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(**{"address": cluster.address} | options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"cannot join the Ray cluster at {cluster.address}: {error}") from error

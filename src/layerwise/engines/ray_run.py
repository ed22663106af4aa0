"""One pass over the shards on Ray: tracks shards in flight, done and suspected, and merges them in order."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from layerwise.core.errors import InputError, MergeError
from layerwise.core.files import Folder
from layerwise.engines.poison import find_poison, without
from layerwise.engines.ray_workers import DEATHS_AT_MOST, Done, WorkerHandle, WorkerPool, cause_of, first_line
from layerwise.engines.shards import ItemT, Prefix, Report, StateT
from layerwise.runs.folder import SHARD_FILE, SHARDS, shard_file

DEATHS_THAT_PROVE = 2  # worker deaths on a single example before it is blamed; one may be a coincidence
SHARDS_PER_WORKER = 2  # the current one and the next, so that a worker never waits for the driver
AHEAD = 8  # shards per worker that may be finished before the next one to merge


@dataclass
class ShardRun(Generic[StateT, ItemT]):
    """One pass over the shards: in flight, done but not merged yet, and suspected."""

    pool: WorkerPool
    folder: Folder
    work: Any  # in Ray's object store
    prefix: Prefix[StateT]
    report: Report
    items: dict[int, Sequence[ItemT]] = field(default_factory=dict)  # items of unfinished shards
    left_out: dict[int, Sequence[ItemT]] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    again: deque[int] = field(default_factory=deque)
    suspected: deque[int] = field(default_factory=deque)
    out: dict[Any, tuple[WorkerHandle, int]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def go(self, shards: Iterable[Sequence[ItemT]]) -> StateT:
        pending = self.unfinished(self.prefix.remaining(shards, self.report))
        while True:
            self.assign_shards(pending)
            self.merge()
            if not self.out and self.suspected:
                self.isolate(self.suspected.popleft())
            elif self.out or self.items or not self.pool.workers:
                self.listen()
            else:
                break
        state = self.prefix.finish()
        self.folder.clear(SHARDS, SHARD_FILE)
        return state

    def unfinished(self, remaining: Iterator[tuple[int, Sequence[ItemT]]]) -> Iterator[int]:
        """The shards still to do, without those whose states an earlier run left in the folder."""
        existing = set(self.folder.names(SHARDS))
        for number, items in remaining:
            if shard_file(number).partition("/")[2] in existing and self.is_whole(number, items):
                self.done.add(number)
                self.report(len(items), 0)
                self.merge()
                continue
            self.items[number] = items
            yield number

    def is_whole(self, number: int, items: Sequence[ItemT]) -> bool:
        try:
            state = self.read(number)
        except (InputError, MergeError):  # damaged, or from another run: compute it again
            return False
        return state.holds(len(items), sum(item.digest for item in items))

    def read(self, number: int) -> StateT:
        return self.prefix.checkpoint.parse(self.folder.read(shard_file(number)) or b"")

    def assign_shards(self, waiting: Iterator[int]) -> None:
        """Assigns shards to workers until each has two or none are left."""
        for _ in range(SHARDS_PER_WORKER):
            for worker in self.pool.workers:
                if len(worker.shards) >= SHARDS_PER_WORKER:
                    continue
                if self.again:
                    number = self.again.popleft()
                elif self.prefix.seen - self.prefix.done >= AHEAD * self.pool.size + SHARDS_PER_WORKER:
                    return
                elif (following := next(waiting, None)) is not None:
                    number = following
                else:
                    return
                excluded = self.left_out.get(number, ())
                included = without(self.items[number], excluded)
                ref = worker.actor.run.remote(self.work, self.folder, number, included, excluded)
                worker.shards.append(number)
                self.out[ref] = worker, number

    def listen(self) -> None:
        """Waits for the next event from a worker and handles it."""
        ready, _ = self.pool.ray.wait([*self.out, *self.pool.opening], num_returns=1)
        for ref in ready:
            if ref in self.pool.opening:
                self.pool.welcome(ref)
            else:
                self.on_result(ref)

    def on_result(self, ref: Any) -> None:
        worker, number = self.out[ref]
        try:
            result = self.pool.ray.get(ref)
        except self.pool.lost:
            self.lose(worker)
            return
        except self.pool.ray.exceptions.RayTaskError as error:
            raise cause_of(error) from None
        del self.out[ref]
        worker.shards.remove(number)
        if isinstance(result, Done):
            self.report(result.items, result.tokens)
            del self.items[number]
            self.done.add(number)
            return
        self.suspected.append(number)
        if not result.foreseen:
            self.lose(worker)

    def lose(self, worker: WorkerHandle) -> None:
        """Handles a lost worker: its shards go to others; a shard that keeps killing workers is suspected."""
        for ref in [ref for ref, (other, _) in self.out.items() if other is worker]:
            del self.out[ref]
        for position, number in enumerate(worker.shards):
            self.deaths[number] = self.deaths.get(number, 0) + (position == 0)  # the others had not started
            (self.suspected if self.deaths[number] >= DEATHS_AT_MOST else self.again).append(number)
        worker.shards.clear()
        self.pool.dismiss(worker)

    def isolate(self, number: int) -> None:
        """Finds the examples that cannot be computed. Nothing else is in flight, so every worker is free."""
        failing = find_poison(
            self.items[number], lambda items: self.trouble(number, items), self.missing, self.prefix.allow_missing
        )
        self.left_out[number], self.deaths[number] = failing, 0
        self.again.append(number)

    @property
    def missing(self) -> int:
        """Examples left out so far, in merged and unmerged shards."""
        return self.prefix.missing + sum(len(items) for n, items in self.left_out.items() if n >= self.prefix.done)

    def trouble(self, number: int, items: Sequence[ItemT]) -> str | None:
        """Why these items fail, or None."""
        reason = ""
        for _ in range(DEATHS_THAT_PROVE if len(items) == 1 else 1):
            while not self.pool.workers:
                self.listen()
            worker = self.pool.workers[0]
            try:
                failure = self.pool.ray.get(worker.actor.trial.remote(self.work, number, items))
            except self.pool.lost as error:
                reason = f"the worker died ({first_line(error)})"
                self.pool.dismiss(worker)
                continue
            if failure is None:
                return None
            if not failure.foreseen:
                self.pool.dismiss(worker)
            return str(failure.why)
        return reason

    def merge(self) -> None:
        """Merges the next finished shards in order; deletes files that a checkpoint includes."""
        while self.prefix.done in self.done:
            number = self.prefix.done
            self.done.remove(number)
            held_before = self.prefix.checkpoint.held or 0
            if self.prefix.add(self.read(number)):
                self.folder.delete(shard_file(n) for n in range(held_before, number + 1))

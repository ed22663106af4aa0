"""One pass over the shards on Ray: tracks shards in flight, done and suspected, and merges them in order."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from layerwise.core.errors import InputError, MergeError
from layerwise.core.files import Folder
from layerwise.engines.poison import exclude_items, find_failing_items
from layerwise.engines.ray_workers import (
    MAX_WORKER_DEATHS,
    ShardDone,
    WorkerHandle,
    WorkerPool,
    first_line,
    unwrap_error,
)
from layerwise.engines.shards import ItemT, MergeProgress, ProgressCallback, StateT
from layerwise.runs.folder import SHARD_FILE, SHARDS, shard_file

DEATHS_TO_CONFIRM = 2  # worker deaths on a single example before it is blamed; one may be a coincidence
SHARDS_PER_WORKER = 2  # the current one and the next, so that a worker never waits for the driver
MAX_SHARDS_AHEAD = 8  # shards per worker that may be finished before the next one to merge


@dataclass
class ShardRun(Generic[StateT, ItemT]):
    """One pass over the shards: in flight, done but not merged yet, and suspected."""

    pool: WorkerPool
    folder: Folder
    work: Any  # in Ray's object store
    prefix: MergeProgress[StateT]
    report: ProgressCallback
    items: dict[int, Sequence[ItemT]] = field(default_factory=dict)  # items of unfinished shards
    excluded: dict[int, Sequence[ItemT]] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    retry_queue: deque[int] = field(default_factory=deque)
    suspected: deque[int] = field(default_factory=deque)
    in_flight: dict[Any, tuple[WorkerHandle, int]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    def run(self, shards: Iterable[Sequence[ItemT]]) -> StateT:
        pending = self.unfinished(self.prefix.remaining(shards, self.report))
        while True:
            self.assign_shards(pending)
            self.merge()
            if not self.in_flight and self.suspected:
                self.isolate(self.suspected.popleft())
            elif self.in_flight or self.items or not self.pool.workers:
                self.wait_for_event()
            else:
                break
        state = self.prefix.finish()
        self.folder.clear(SHARDS, SHARD_FILE)
        return state

    def unfinished(self, remaining: Iterator[tuple[int, Sequence[ItemT]]]) -> Iterator[int]:
        """The shards still to do, without those whose states an earlier run left in the folder."""
        existing = set(self.folder.names(SHARDS))
        for number, items in remaining:
            if shard_file(number).partition("/")[2] in existing and self.is_complete(number, items):
                self.done.add(number)
                self.report(len(items), 0)
                self.merge()
                continue
            self.items[number] = items
            yield number

    def is_complete(self, number: int, items: Sequence[ItemT]) -> bool:
        try:
            state = self.read(number)
        except (InputError, MergeError):  # damaged, or from another run: compute it again
            return False
        return state.was_made_from(len(items), sum(item.digest for item in items))

    def read(self, number: int) -> StateT:
        return self.prefix.checkpoint.parse(self.folder.read(shard_file(number)) or b"")

    def assign_shards(self, pending: Iterator[int]) -> None:
        """Assigns shards to workers until each has two or none are left."""
        for _ in range(SHARDS_PER_WORKER):
            for worker in self.pool.workers:
                if len(worker.shards) >= SHARDS_PER_WORKER:
                    continue
                if self.retry_queue:
                    number = self.retry_queue.popleft()
                elif (
                    self.prefix.seen_shards - self.prefix.merged_shards
                    >= MAX_SHARDS_AHEAD * self.pool.size + SHARDS_PER_WORKER
                ):
                    return
                elif (following := next(pending, None)) is not None:
                    number = following
                else:
                    return
                excluded = self.excluded.get(number, ())
                included = exclude_items(self.items[number], excluded)
                ref = worker.actor.run.remote(self.work, self.folder, number, included, excluded)
                worker.shards.append(number)
                self.in_flight[ref] = worker, number

    def wait_for_event(self) -> None:
        """Waits for the next event from a worker and handles it."""
        ready, _ = self.pool.ray.wait([*self.in_flight, *self.pool.loading], num_returns=1)
        for ref in ready:
            if ref in self.pool.loading:
                self.pool.register_worker(ref)
            else:
                self.on_result(ref)

    def on_result(self, ref: Any) -> None:
        worker, number = self.in_flight[ref]
        try:
            result = self.pool.ray.get(ref)
        except self.pool.lost_worker_errors:
            self.on_worker_lost(worker)
            return
        except self.pool.ray.exceptions.RayTaskError as error:
            raise unwrap_error(error) from None
        del self.in_flight[ref]
        worker.shards.remove(number)
        if isinstance(result, ShardDone):
            self.report(result.items, result.tokens)
            del self.items[number]
            self.done.add(number)
            return
        self.suspected.append(number)
        if not result.expected:
            self.on_worker_lost(worker)

    def on_worker_lost(self, worker: WorkerHandle) -> None:
        """Handles a lost worker: its shards go to others; a shard that keeps killing workers is suspected."""
        for ref in [ref for ref, (other, _) in self.in_flight.items() if other is worker]:
            del self.in_flight[ref]
        for position, number in enumerate(worker.shards):
            self.deaths[number] = self.deaths.get(number, 0) + (position == 0)  # the others had not started
            (self.suspected if self.deaths[number] >= MAX_WORKER_DEATHS else self.retry_queue).append(number)
        worker.shards.clear()
        self.pool.replace_worker(worker)

    def isolate(self, number: int) -> None:
        """Finds the examples that cannot be computed. Nothing else is in flight, so every worker is free."""
        failing = find_failing_items(
            self.items[number],
            lambda items: self.failure_reason(number, items),
            self.missing,
            self.prefix.allow_missing,
        )
        self.excluded[number], self.deaths[number] = failing, 0
        self.retry_queue.append(number)

    @property
    def missing(self) -> int:
        """Examples left out so far, in merged and unmerged shards."""
        return self.prefix.missing + sum(
            len(items) for n, items in self.excluded.items() if n >= self.prefix.merged_shards
        )

    def failure_reason(self, number: int, items: Sequence[ItemT]) -> str | None:
        """Why these items fail, or None."""
        reason = ""
        for _ in range(DEATHS_TO_CONFIRM if len(items) == 1 else 1):
            while not self.pool.workers:
                self.wait_for_event()
            worker = self.pool.workers[0]
            try:
                failure = self.pool.ray.get(worker.actor.try_items.remote(self.work, number, items))
            except self.pool.lost_worker_errors as error:
                reason = f"the worker died ({first_line(error)})"
                self.pool.replace_worker(worker)
                continue
            if failure is None:
                return None
            if not failure.expected:
                self.pool.replace_worker(worker)
            return str(failure.why)
        return reason

    def merge(self) -> None:
        """Merges the next finished shards in order; deletes files that a checkpoint includes."""
        while self.prefix.merged_shards in self.done:
            number = self.prefix.merged_shards
            self.done.remove(number)
            held_before = self.prefix.checkpoint.saved_shards or 0
            if self.prefix.add(self.read(number)):
                self.folder.delete(shard_file(n) for n in range(held_before, number + 1))

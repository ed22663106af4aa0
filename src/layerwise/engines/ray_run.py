"""One pass over the shards on Ray: tracks shards in flight, stored and suspected, and has their states merged."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

import torch

from layerwise.core.errors import RunError
from layerwise.engines.checkpoints import Checkpoint, Node, leaf, merge_children, parent, sibling, was_made_from
from layerwise.engines.failing_items import exclude_items, find_failing_items
from layerwise.engines.merging import ShardWalk, intact_nodes, require_examples, require_missing_allowed
from layerwise.engines.ray_workers import (
    MAX_WORKER_DEATHS,
    ShardDone,
    WorkerHandle,
    WorkerPool,
    first_line,
    unwrap_error,
)
from layerwise.engines.shards import ItemT, ProgressCallback, StateT

DEATHS_TO_CONFIRM = 2  # worker deaths on a single example before it is blamed; one may be a coincidence
SHARDS_PER_WORKER = 2  # the current one and the next, so that a worker never waits for the driver
MAX_SHARDS_AHEAD = 8  # shards per worker that may be finished before the next one to merge


@dataclass
class ShardRun(Generic[StateT, ItemT]):
    """One pass over the shards: in flight, stored, being merged, and suspected."""

    pool: WorkerPool
    checkpoint: Checkpoint[StateT]
    work: Any  # in Ray's object store
    allow_missing: int
    report: ProgressCallback
    items: dict[int, Sequence[ItemT]] = field(default_factory=dict)  # items of unfinished shards
    excluded: dict[int, Sequence[ItemT]] = field(default_factory=dict)
    missing_before: list[str] = field(default_factory=list)  # in shards of an earlier run
    deaths: dict[int, int] = field(default_factory=dict)
    retry_queue: deque[int] = field(default_factory=deque)
    suspected: deque[int] = field(default_factory=deque)
    in_flight: dict[Any, tuple[WorkerHandle, int]] = field(default_factory=dict)
    nodes: set[Node] = field(default_factory=set)  # stored, and not being merged
    to_merge: deque[Node] = field(default_factory=deque)
    merging: dict[Any, tuple[WorkerHandle, Node]] = field(default_factory=dict)
    failed_merges: int = 0  # in a row
    total: int | None = None  # shards, once the data are read

    def run(self, shards: Iterable[Sequence[ItemT]]) -> StateT:
        self.threads = torch.get_num_threads()  # those of the plan: they affect the last bits
        stored = intact_nodes(self.checkpoint)
        self.missing_before = [example for ids in stored.values() for example in ids]
        require_missing_allowed(self.missing_before, self.allow_missing)
        self.walk = ShardWalk(stored, partial(was_made_from, self.checkpoint))
        pending = self.unfinished(shards)
        while True:
            self.assign_shards(pending)
            self.start_merging()
            if self.suspected and not self.in_flight and not self.merging:
                self.isolate(self.suspected.popleft())
            elif self.in_flight or self.items or self.merging or not self.pool.workers:
                self.wait_for_event()
            else:
                break
        require_examples(self.walk.shards)
        (root,) = self.nodes
        state = self.checkpoint.read(root)
        self.walk.require_made_from_all(state)
        require_missing_allowed(state.missing, self.allow_missing)
        self.checkpoint.finish(state, self.walk.shards)
        return state

    def unfinished(self, shards: Iterable[Sequence[ItemT]]) -> Iterator[int]:
        """The shards still to do."""
        for number, items in self.walk.remaining(shards, self.add_node, self.report):
            self.items[number] = items
            yield number
        self.total = self.walk.shards
        edge, self.nodes = sorted(self.nodes), set()
        for node in edge:  # now that the right edge of the tree is known
            self.add_node(node)

    def add_node(self, node: Node) -> None:
        """Notes that a node is stored; it is merged if its other half is there."""
        above = parent(node, self.total)
        if above is not None and (other := sibling(node, above)) in self.nodes:
            self.nodes -= {node, other}
            self.to_merge.append(above)
        else:
            self.nodes.add(node)

    def start_merging(self) -> None:
        """Has nodes merged by workers that merge nothing else, since two states are held for each."""
        for worker in self.pool.workers:
            if self.to_merge and all(worker is not busy for busy, _ in self.merging.values()):
                node = self.to_merge.popleft()
                ref = worker.actor.call.remote(self.threads, merge_children, self.checkpoint, node)
                self.merging[ref] = worker, node

    def on_merged(self, ref: Any) -> None:
        worker, node = self.merging[ref]
        try:
            self.pool.ray.get(ref)
        except self.pool.lost_worker_errors as error:
            self.failed_merges += 1
            if self.failed_merges > MAX_WORKER_DEATHS * self.pool.size:
                raise RunError(f"workers keep dying while they merge states: {first_line(error)}") from None
            self.on_worker_lost(worker)
            return
        except self.pool.ray.exceptions.RayTaskError as error:
            raise unwrap_error(error) from None
        del self.merging[ref]
        self.failed_merges = 0
        if node.is_full:  # others are not resumed from: their parts are needed until the run is finished
            self.checkpoint.delete_nodes(node.children())
        self.add_node(node)

    def assign_shards(self, pending: Iterator[int]) -> None:
        """Assigns shards to workers until each has two or none are left."""
        for _ in range(SHARDS_PER_WORKER):
            for worker in self.pool.workers:
                if len(worker.shards) >= SHARDS_PER_WORKER:
                    continue
                if self.retry_queue:
                    number = self.retry_queue.popleft()
                elif self.shards_ahead >= MAX_SHARDS_AHEAD * self.pool.size + SHARDS_PER_WORKER:
                    return
                elif (following := next(pending, None)) is not None:
                    number = following
                else:
                    return
                excluded = self.excluded.get(number, ())
                included = exclude_items(self.items[number], excluded)
                ref = worker.actor.run.remote(self.work, self.checkpoint, number, included, excluded)
                worker.shards.append(number)
                self.in_flight[ref] = worker, number

    @property
    def shards_ahead(self) -> int:
        """How many shards were read since the first that is not finished."""
        return self.walk.shards - min(self.items, default=self.walk.shards)

    def wait_for_event(self) -> None:
        """Waits for the next event from a worker and handles it."""
        ready, _ = self.pool.ray.wait([*self.in_flight, *self.merging, *self.pool.loading], num_returns=1)
        for ref in ready:
            if ref in self.pool.loading:
                self.pool.register_worker(ref)
            elif ref in self.merging:
                self.on_merged(ref)
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
            self.add_node(leaf(number))
            return
        self.suspected.append(number)
        if not result.expected:
            self.on_worker_lost(worker)

    def on_worker_lost(self, worker: WorkerHandle) -> None:
        """Handles a lost worker: its shards go to others; a shard that keeps killing workers is suspected."""
        for ref in [ref for ref, (other, _) in self.in_flight.items() if other is worker]:
            del self.in_flight[ref]
        for ref in [ref for ref, (other, _) in self.merging.items() if other is worker]:
            self.to_merge.append(self.merging.pop(ref)[1])
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
            self.allow_missing,
        )
        self.excluded[number], self.deaths[number] = failing, 0
        self.retry_queue.append(number)

    @property
    def missing(self) -> int:
        """Examples left out so far, by an earlier run and by this one."""
        return len(self.missing_before) + sum(len(items) for items in self.excluded.values())

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

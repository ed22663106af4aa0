"""Merging: walks through the shards of the data, and merges states along the tree within a limit of memory."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Generic

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder
from layerwise.core.outputs import scratch_folder
from layerwise.core.progress import announce
from layerwise.engines.checkpoints import Checkpoint, Node, largest, missing_in, parent
from layerwise.engines.shards import ItemT, ProgressCallback, StateT, no_report
from layerwise.runs.folder import state_file
from layerwise.runs.summary import counted

STATES_IN_MEMORY = 2  # at least: the two that are merged next
MAX_MERGED_BYTES = 4 * 2**30  # of merged states in memory; beyond it, those of the first shards wait on the disk


@dataclass
class ShardWalk:
    """A walk through the shards of the data. Stored ones are compared with the data and passed over."""

    stored: Mapping[Node, Sequence[str]]  # and the examples that are missing in each
    is_made_from: Callable[[Node, int, int], bool]
    shards: int = 0
    items: int = 0
    digests: int = 0

    def remaining(
        self,
        shards: Iterable[Sequence[ItemT]],
        on_stored: Callable[[Node], None],
        report: ProgressCallback = no_report,
    ) -> Iterator[tuple[int, Sequence[ItemT]]]:
        """The shards that are not stored, with their numbers. `on_stored` gets each stored node at its place.

        The items of stored shards are reported at once, so that a bar begins where the earlier run stopped.
        """
        waiting = deque(sorted(self.stored))
        count = digests = 0
        for number, shard in enumerate(shards):
            of_shard = sum(item.digest for item in shard)
            self.shards, self.items, self.digests = number + 1, self.items + len(shard), self.digests + of_shard
            if not waiting or number < waiting[0].first:
                yield number, shard
                continue
            count, digests = count + len(shard), digests + of_shard
            if number + 1 < waiting[0].last:
                report(len(shard), 0)
                continue
            node = waiting.popleft()
            if self.is_made_from(node, count, digests):
                report(len(shard), 0)
                on_stored(node)
            elif node.size == 1:  # its items are at hand
                yield number, shard
            else:
                raise other_data()
            count = digests = 0
        if waiting:
            raise other_data()

    def require_made_from_all(self, state: StateT) -> None:
        if not state.was_made_from(self.items, self.digests):
            raise other_data()


def finished_state(
    checkpoint: Checkpoint[StateT], shards: Iterable[Sequence[ItemT]], allow_missing: int
) -> StateT | None:
    """The state of a run that is finished; None if it is not. Raises if it was made from other data."""
    if (finished := checkpoint.finished()) is None:
        return None
    state, count = finished
    walk = ShardWalk({}, lambda node, count, digests: True)
    for _ in walk.remaining(shards, lambda node: None):
        pass
    if walk.shards != count:
        raise other_data()
    walk.require_made_from_all(state)
    require_missing_allowed(state.missing, allow_missing)
    checkpoint.delete(keep=state_file(count))  # a process that was killed as it finished has left its shards
    announce(f"resuming: {count:,} of {counted(count, 'shard')} done already")
    return state


def other_data() -> RunError:
    return RunError(
        "the data differ from those that the run in this folder began with; choose another folder for --out"
    )


def require_examples(shards: int) -> None:
    if not shards:
        raise InputError("the data contain no examples; nothing was computed")


def require_missing_allowed(missing: Sequence[str], allowed: int) -> None:
    if len(missing) > allowed:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{len(missing)} of the examples could not be computed and were left out ({shown}), but only "
            f"{allowed} are allowed to be. Pass --allow-missing {len(missing)}, or use another folder"
        )


def intact_nodes(checkpoint: Checkpoint[StateT]) -> dict[Node, Sequence[str]]:
    """The largest intact nodes that are stored, and the examples that are missing in each."""
    missing = {node: missing_in(checkpoint, node) for node in checkpoint.stored()}
    intact = {node: ids for node, ids in missing.items() if ids is not None}
    found = {node: intact[node] for node in largest(intact)}
    if done := sum(node.size for node in found):
        total = checkpoint.shards
        amount = counted(done, "shard") if total is None else f"{done:,} of {counted(total, 'shard')}"
        announce(f"resuming: {amount} done already")
    return found


def states_in_memory(shards: int, state_bytes: int) -> int:
    """How many merged states a tree of so many shards holds in memory at most, if all are as large as that."""
    fitting = MAX_MERGED_BYTES // max(1, state_bytes)
    return min(shards.bit_length(), max(STATES_IN_MEMORY, fitting))


@dataclass
class MergeTree(Generic[StateT]):
    """The states of the shards so far, from the first, merged as far as the tree allows: at most log2(shards) + 1.

    States that do not fit into memory wait in the run folder, or in a temporary one.
    """

    checkpoint: Checkpoint[StateT]
    nodes: list[Node] = field(default_factory=list)
    states: dict[Node, StateT] = field(default_factory=dict)  # those in memory
    written: set[Node] = field(default_factory=set)
    saved_at: float = field(default_factory=time.monotonic)
    resources: ExitStack = field(default_factory=ExitStack)

    def add_stored(self, node: Node) -> None:
        """Adds a node whose file is there."""
        self.written.add(node)
        self._add(node)

    def add(self, node: Node, state: StateT) -> None:
        self.states[node] = state
        self._add(node)

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        while len(self.nodes) > 1 and parent(self.nodes[-2], None) == parent(self.nodes[-1], None):
            self._merge_last_two()
        self._spill()

    def _merge_last_two(self) -> None:
        left, right = self.nodes[-2:]
        merged = self._take(left)
        merged.merge(self._take(right))
        self.nodes[-2:] = [Node(left.first, right.last)]
        self.states[self.nodes[-1]] = merged

    def _take(self, node: Node) -> StateT:
        return self.states.pop(node) if node in self.states else self.checkpoint.read(node)

    def _spill(self) -> None:
        """Writes states to the disk until the rest fits: those of the first shards, which are needed last."""
        in_memory = [node for node in self.nodes if node in self.states]
        while (
            len(in_memory) > STATES_IN_MEMORY and sum(self.states[node].size for node in in_memory) > MAX_MERGED_BYTES
        ):
            node = in_memory.pop(0)
            if self.checkpoint.folder is None:
                folder = self.resources.enter_context(scratch_folder("states"))
                self.checkpoint = replace(self.checkpoint, folder=DiskFolder(folder), interval=float("inf"))
            self._write(node)
            del self.states[node]

    def _write(self, node: Node) -> None:
        if node not in self.written:
            self.checkpoint.write(node, self.states[node])
            self.written.add(node)

    def save(self, *, force: bool = False) -> None:
        """Writes a checkpoint if it is due: what is not written yet. Deletes what was merged since."""
        if self.checkpoint.folder is None or not (
            force or time.monotonic() - self.saved_at >= self.checkpoint.interval
        ):
            return
        for node in self.nodes:
            self._write(node)
        stale = self.written.difference(self.nodes)
        self.checkpoint.delete_nodes(stale)
        self.written -= stale
        self.saved_at = time.monotonic()

    def finish(self) -> StateT:
        """The state of all shards."""
        while len(self.nodes) > 1:
            self._merge_last_two()
        return self._take(self.nodes[0])

    def close(self) -> None:
        self.resources.close()

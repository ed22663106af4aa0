"""Checkpoints: the files that a run resumes from, one per node of the merge tree, and one for a finished run.

The tree depends on shard numbers alone, so that sums have the same bits on one machine and on many, whichever shard is
finished first.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from layerwise.core.errors import InputError, MergeError, RunError
from layerwise.core.files import Folder
from layerwise.engines.shards import StateT
from layerwise.runs.folder import SHARD_FILE, SHARDS, shard_count, state_file, state_files


@dataclass(frozen=True, order=True)
class Node:
    """Consecutive shards: `first` is the first of them, `last` the first that does not belong to them."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first:05d}-{self.last:05d}"

    @property
    def size(self) -> int:
        return self.last - self.first

    @property
    def is_full(self) -> bool:
        """True if it is in the tree of any larger number of shards; others are at the right edge of one tree."""
        return self.size & (self.size - 1) == 0 and self.first % self.size == 0

    def children(self) -> "tuple[Node, Node]":
        """Its two parts: as many shards as the largest power of two below its size, and the rest."""
        middle = self.first + (1 << ((self.size - 1).bit_length() - 1))
        return Node(self.first, middle), Node(middle, self.last)

    def contains(self, other: "Node") -> bool:
        return self.first <= other.first and other.last <= self.last


def leaf(number: int) -> Node:
    """The node of a single shard."""
    return Node(number, number + 1)


def parent(node: Node, total: int | None) -> Node | None:
    """The node that it is merged into; None for the root.

    `total` is the number of shards, or None while it is not known; until then only full nodes can be merged.
    """
    size = 2 * node.size
    full = Node(node.first // size * size, node.first // size * size + size)
    if node.is_full and (total is None or full.last <= total):
        return full
    if total is None:
        return None
    above: Node | None = None
    current = Node(0, total)
    while current != node:
        above = current
        current = next(child for child in current.children() if child.contains(node))
    return above


def sibling(node: Node, above: Node) -> Node:
    """The other child of the node's parent."""
    left, right = above.children()
    return right if node == left else left


def largest(nodes: Iterable[Node]) -> list[Node]:
    """Those that are not part of a larger one, in order."""
    found: list[Node] = []
    for node in sorted(nodes, key=lambda node: (-node.size, node.first)):
        if not any(other.contains(node) for other in found):
            found.append(node)
    return sorted(found)


@dataclass(frozen=True)
class Checkpoint(Generic[StateT]):
    """The files of a run. Can be pickled.

    `shards/00008-00012` holds the merged state of shards 8 to 11, and `state-00013` that of all 13 of them. A node is
    written before the two that it is made of are deleted, so a killed run loses at most what was not written yet.
    """

    folder: Folder | None
    parse: Callable[[bytes], StateT]
    interval: float = 0.0  # seconds between checkpoints of a local run
    shards: int | None = None  # in all, for messages; None where that is not known

    @property
    def files(self) -> Folder:
        assert self.folder is not None, "a run without a folder has no files"
        return self.folder

    def read(self, node: Node) -> StateT:
        return self.parse(self.files.read(node_file(node)) or b"")

    def write(self, node: Node, state: StateT) -> None:
        self.files.write(node_file(node), state.dump())

    def delete_nodes(self, nodes: Iterable[Node]) -> None:
        self.files.delete(node_file(node) for node in nodes)

    def stored(self) -> list[Node]:
        """The full nodes in the folder; whether they are intact is not known. Others are made again from these."""
        found = [] if self.folder is None else [node_named(name) for name in self.folder.names(SHARDS)]
        return [node for node in found if node is not None and node.is_full]

    def finished(self) -> tuple[StateT, int] | None:
        """The state of all shards and their number; None if the run is not finished, or the file is damaged."""
        for name in [] if self.folder is None else reversed(state_files(self.folder)):
            try:
                return self.parse(self.files.read(name) or b""), shard_count(name)
            except MergeError as error:
                raise belongs_to_another_run(f"{name} in {self.folder}", error) from None
            except InputError:
                continue
        return None

    def finish(self, state: StateT, shards: int) -> None:
        """Writes the state of all shards, then deletes everything else."""
        if self.folder is not None:
            self.folder.write(state_file(shards), state.dump())
            self.delete(keep=state_file(shards))

    def delete(self, keep: str = "") -> None:
        """Deletes all checkpoints, including those of a killed run, except one file."""
        if self.folder is not None:
            self.folder.delete(stale for stale in state_files(self.folder) if stale != keep)
            self.folder.clear(SHARDS, SHARD_FILE)


def node_file(node: Node) -> str:
    return f"{SHARDS}/{node}.safetensors"


def node_named(name: str) -> Node | None:
    """The node of a file in the subfolder; None for files of users."""
    if not SHARD_FILE.fullmatch(name):
        return None
    first, last = map(int, name.partition(".")[0].split("-"))
    return Node(first, last) if first < last else None


def belongs_to_another_run(where: str, error: MergeError) -> RunError:
    return RunError(f"{where} belongs to another run: {error}. Use another folder")


# What is done with the file of a node, in this process or in a worker's.


def missing_in(checkpoint: Checkpoint[StateT], node: Node) -> Sequence[str] | None:
    """The examples that are missing in a stored node; None if its file is damaged."""
    try:
        return checkpoint.read(node).missing
    except MergeError as error:
        raise belongs_to_another_run(f"{node_file(node)} in {checkpoint.folder}", error) from None
    except InputError:
        return None


def was_made_from(checkpoint: Checkpoint[StateT], node: Node, count: int, digests: int) -> bool:
    """True if a stored node was made from so many items whose digests have that sum."""
    return checkpoint.read(node).was_made_from(count, digests)


def merge_children(checkpoint: Checkpoint[StateT], node: Node) -> None:
    """Merges the two parts of a node and writes it. Doing it twice does no harm: the bytes are the same."""
    left, right = map(checkpoint.read, node.children())
    left.merge(right)
    checkpoint.write(node, left)

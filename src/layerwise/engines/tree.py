"""The tree in which the states of shards are merged. It depends on shard numbers alone, so that sums have the same bits
on one machine and on many, whichever shard is finished first."""

from collections.abc import Iterable
from dataclasses import dataclass


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

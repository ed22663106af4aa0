"""Common to all engines: shards of items, and mergeable states."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar

import torch


class Item(Protocol):
    """An example, as engines see it: its id, and a hash of id and content."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> int: ...


class Mergeable(Protocol):
    """The state of a shard."""

    @property
    def missing(self) -> list[str]:
        """The ids of items that could not be computed and were left out."""

    @property
    def size(self) -> int:
        """Bytes of memory."""

    def merge(self, other: Self) -> None: ...
    def dump(self) -> bytes: ...
    def was_made_from(self, count: int, digests: int) -> bool:
        """True if it was made from `count` items whose digests sum to `digests`, including those left out."""

    def record_missing(self, items: Sequence[Item]) -> None:
        """Records items of the shard that could not be computed."""


StateT = TypeVar("StateT", bound=Mergeable)
ItemT = TypeVar("ItemT", bound=Item)
ResultT = TypeVar("ResultT")
ShardResult = tuple[StateT, Mapping[str, bytes]]  # a shard's state, and further files of the run by name
ProgressCallback = Callable[[int, int], None]  # number of new items and new tokens


# The shard function, the same in every engine: tool, shard number, items, report -> product. It writes nothing. The
# tool is the object that a process reuses for all shards: the model.
ShardFunction = Callable[[Any, int, Sequence[Any], ProgressCallback], ShardResult[StateT]]


def no_report(items: int, tokens: int) -> None:
    """A progress callback that does nothing."""


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Sets the number of torch threads inside the context, and restores it afterwards."""
    previous = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


class Processes(Protocol):
    """Single-threaded processes that are called with plain data; results arrive in any order."""

    @property
    def parallelism(self) -> int:
        """The number of calls that run at a time; 0 if there are no processes."""

    def results(self, function: Callable[..., ResultT], calls: Iterable[tuple[Any, ...]]) -> Iterator[ResultT]: ...

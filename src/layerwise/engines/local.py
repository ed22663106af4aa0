"""The local engine: one shard after the other, merged in order, with a checkpoint that a later run takes up."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from layerwise.errors import InputError, RunError
from layerwise.files import write_atomically


class Item(Protocol):
    """An example: all that an engine knows of it is the hash of its id."""

    @property
    def key(self) -> int: ...


class Mergeable(Protocol):
    """A state that shards leave behind."""

    def merge(self, other: Self) -> None: ...
    def dump(self) -> bytes: ...
    def holds(self, count: int, keys: int) -> bool:
        """True if it was made of so many items whose keys have that sum."""


StateT = TypeVar("StateT", bound=Mergeable)
ItemT = TypeVar("ItemT", bound=Item)


class Checkpoint(Generic[StateT]):
    """The merged state of the first shards of a run, in one file that is replaced as a whole.

    `state-00012` holds shards 0 to 11. The next one is in place before the last one is deleted, so a run
    that is killed at any moment loses at most the shards since the last checkpoint.
    """

    def __init__(self, folder: Path | None, parse: Callable[[bytes], StateT], every: float) -> None:
        self.folder, self.parse, self.every = folder, parse, every
        self.written = time.monotonic()
        self.held: int | None = None  # shards in the newest file

    def latest(self) -> tuple[StateT | None, int]:
        """The newest whole checkpoint and how many shards it holds; none is (None, 0)."""
        for path in sorted(self._files(), reverse=True):
            try:
                state, self.held = self.parse(path.read_bytes()), int(path.stem.rpartition("-")[2])
                return state, self.held
            except InputError:
                path.unlink()  # damaged: an older one, or the beginning, is right
        return None, 0

    def save(self, state: StateT, shards: int, *, now: bool = False) -> None:
        if self.folder is None or shards == self.held or not (now or time.monotonic() - self.written >= self.every):
            return
        older = self._files()
        path = self.folder / f"state-{shards:05d}.safetensors"
        write_atomically(path, state.dump())
        for stale in older:
            if stale != path:
                stale.unlink()
        self.written, self.held = time.monotonic(), shards

    def _files(self) -> list[Path]:
        return list(self.folder.glob("state-*.safetensors")) if self.folder else []


def run_shards(
    shards: Iterable[Sequence[ItemT]], work: Callable[[int, Sequence[ItemT]], StateT], checkpoint: Checkpoint[StateT]
) -> StateT:
    """The merged state of all shards, merged in their order: the same plan gives the same bits, resumed or not."""
    merged, done = checkpoint.latest()
    count = items = keys = 0
    for shard in shards:
        if count >= done:
            if count == done and merged is not None:
                require_same_data(merged, items, keys)
            state = work(count, shard)
            if merged is None:
                merged = state
            else:
                merged.merge(state)
            checkpoint.save(merged, count + 1)
        count, items, keys = count + 1, items + len(shard), keys + sum(item.key for item in shard)
    if merged is None:
        raise InputError("the data hold no example; nothing was computed")
    require_same_data(merged, items, keys)
    checkpoint.save(merged, count, now=True)
    return merged


def require_same_data(state: Mergeable, items: int, keys: int) -> None:
    if not state.holds(items, keys):
        raise RunError("the data differ from those this folder was begun with; use another folder, or empty this one")

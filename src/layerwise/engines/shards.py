"""What every engine needs: shards of items, states that merge, and a checkpoint that a later run takes up."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from layerwise.core.errors import InputError, MergeError, RunError
from layerwise.core.files import Folder
from layerwise.runs.folder import SHARD_FILE, SHARDS, shards_in, state_file, state_files


class Item(Protocol):
    """An example: all that an engine knows of it is its name and a hash of its id and content."""

    @property
    def id(self) -> str: ...
    @property
    def digest(self) -> int: ...


class Mergeable(Protocol):
    """A state that shards leave behind."""

    @property
    def missing(self) -> list[str]:
        """The ids of items that could not be computed and were left out."""

    def merge(self, other: Self) -> None: ...
    def dump(self) -> bytes: ...
    def holds(self, count: int, digests: int) -> bool:
        """True if it was made of so many items whose digests have that sum, left out or not."""

    def leave_out(self, items: Sequence[Item]) -> None:
        """Notes items of the shard that could not be computed."""


StateT = TypeVar("StateT", bound=Mergeable)
ItemT = TypeVar("ItemT", bound=Item)
AnswerT = TypeVar("AnswerT")
Product = tuple[StateT, Mapping[str, bytes]]  # a shard's state, and further files of the run by name
Report = Callable[[int, int], None]  # so many items more, so many tokens more


# What is done with a shard, the same in every engine: tool, shard number, items, report -> product. It writes nothing.
# The tool is what a process holds on to from shard to shard: the model.
Work = Callable[[Any, int, Sequence[Any], Report], Product[StateT]]


def silent(items: int, tokens: int) -> None:
    """The report that nobody reads."""


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Tensors are worked on by so many threads; afterwards by as many as before."""
    previous = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


class Engine(Protocol):
    """Does the work of all shards and merges their states in order. `identity` tells what its tool is."""

    @property
    def identity(self) -> Any: ...
    def run_shards(
        self,
        shards: Iterable[Sequence[ItemT]],
        work: Work[StateT],
        checkpoint: "Checkpoint[StateT]",
        *,
        allow_missing: int = 0,
        report: Report = silent,
    ) -> StateT: ...


class Processes(Protocol):
    """Processes of one thread that are called with plain data and answer in any order."""

    @property
    def width(self) -> int:
        """How many calls are worked on at a time; 0: nobody is there."""

    def answers(self, function: Callable[..., AnswerT], calls: Iterable[tuple[Any, ...]]) -> Iterator[AnswerT]: ...


class Checkpoint(Generic[StateT]):
    """The merged state of the first shards of a run, in one file that is replaced as a whole.

    `state-00012` holds shards 0 to 11. The next one is in place before the last one is deleted, so a run
    that is killed at any moment loses at most the shards since the last checkpoint.
    """

    def __init__(self, folder: Folder | None, parse: Callable[[bytes], StateT], every: float) -> None:
        self.folder, self.parse, self.every = folder, parse, every
        self.written = time.monotonic()
        self.held: int | None = None  # shards in the newest file

    def latest(self) -> tuple[StateT | None, int]:
        """The newest whole checkpoint and how many shards it holds; none is (None, 0).

        A damaged one is passed over: an older one, or the beginning, is right. The next `save` replaces it.
        """
        for folder, name in reversed(self._files()):
            try:
                state, self.held = self.parse(folder.read(name) or b""), shards_in(name)
                return state, self.held
            except MergeError as error:
                raise RunError(f"{name} in {folder} is the state of another run: {error}. Use another folder") from None
            except InputError:
                continue
        return None, 0

    def save(self, state: StateT, shards: int, *, now: bool = False) -> bool:
        """Writes the state if it is time to; True if that was done."""
        if self.folder is None or shards == self.held or not (now or time.monotonic() - self.written >= self.every):
            return False
        older = self._files()
        name = state_file(shards)
        self.folder.write(name, state.dump())
        self.folder.delete(stale for _, stale in older if stale != name)
        self.written, self.held = time.monotonic(), shards
        return True

    def forget(self) -> None:
        """Deletes what is there, of this run or of one that was killed."""
        for folder, name in self._files():
            folder.delete([name])
        if self.folder:
            self.folder.clear(SHARDS, SHARD_FILE)
        self.held = None

    def _files(self) -> list[tuple[Folder, str]]:
        return [(self.folder, name) for name in state_files(self.folder)] if self.folder else []


class Prefix(Generic[StateT]):
    """The shards merged so far, always the first ones, and the proof that none is lost and none counted twice."""

    def __init__(self, checkpoint: Checkpoint[StateT], allow_missing: int) -> None:
        self.checkpoint, self.allow_missing = checkpoint, allow_missing
        self.merged, self.done = checkpoint.latest()
        self.seen = self.items = self.digests = 0

    @property
    def missing(self) -> int:
        return len(self.merged.missing) if self.merged is not None else 0

    def remaining(
        self, shards: Iterable[Sequence[ItemT]], report: Report = silent
    ) -> Iterator[tuple[int, Sequence[ItemT]]]:
        """The shards that are not merged yet, with their numbers; those that are must be the ones of this folder.

        The items of merged shards are reported at once, so that a bar begins where the earlier run stopped.
        """
        merged_before = self.done
        for shard in shards:
            if self.seen == merged_before:
                self._require_same_data()
            number = self.seen
            self.seen, self.items = number + 1, self.items + len(shard)
            self.digests += sum(item.digest for item in shard)
            if number >= merged_before:
                yield number, shard
            else:
                report(len(shard), 0)

    def add(self, state: StateT) -> bool:
        """Merges the next shard in order; True if a checkpoint now holds it."""
        if self.merged is None:
            self.merged = state
        else:
            self.merged.merge(state)
        self.done += 1
        self._require_no_more_missing()
        return self.checkpoint.save(self.merged, self.done)

    def save(self) -> None:
        """Writes a checkpoint of the shards merged so far, for a later run to resume from."""
        if self.merged is not None:
            self.checkpoint.save(self.merged, self.done, now=True)

    def finish(self) -> StateT:
        """The state of all shards, once there are no more."""
        if self.merged is None:
            raise InputError("the data hold no example; nothing was computed")
        self._require_same_data()
        self._require_no_more_missing()
        self.save()
        return self.merged

    def _require_same_data(self) -> None:
        if self.merged is not None and not (self.done == self.seen and self.merged.holds(self.items, self.digests)):
            raise RunError(
                "the data differ from those that the run in this folder began with; pass another folder to --out"
            )

    def _require_no_more_missing(self) -> None:
        if self.merged is not None and len(missing := self.merged.missing) > self.allow_missing:
            shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} examples could not be computed and were left out ({shown}); {self.allow_missing} may "
                f"be. Pass --allow-missing {len(missing)}, or use another folder"
            )

"""Common to all engines: shards of items, mergeable states, and checkpoints to resume from."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from layerwise.core.errors import InputError, MergeError, RunError
from layerwise.core.files import Folder
from layerwise.runs.folder import SHARD_FILE, SHARDS, shard_count, state_file, state_files


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


class Engine(Protocol):
    """Runs all shards and merges their states in order. `identity` identifies the model."""

    @property
    def identity(self) -> Any: ...
    def run_shards(
        self,
        shards: Iterable[Sequence[ItemT]],
        work: ShardFunction[StateT],
        checkpoint: "Checkpoint[StateT]",
        *,
        allow_missing: int = 0,
        report: ProgressCallback = no_report,
    ) -> StateT: ...


class Processes(Protocol):
    """Single-threaded processes that are called with plain data; results arrive in any order."""

    @property
    def parallelism(self) -> int:
        """The number of calls that run at a time; 0 if there are no processes."""

    def results(self, function: Callable[..., ResultT], calls: Iterable[tuple[Any, ...]]) -> Iterator[ResultT]: ...


class Checkpoint(Generic[StateT]):
    """The merged state of the first shards of a run, in one file that is replaced atomically.

    `state-00012` holds shards 0 to 11. The next checkpoint is written before the previous one is deleted, so a killed
    run loses at most the shards since the last checkpoint.
    """

    def __init__(self, folder: Folder | None, parse: Callable[[bytes], StateT], interval: float) -> None:
        self.folder, self.parse, self.interval = folder, parse, interval
        self.saved_at = time.monotonic()
        self.saved_shards: int | None = None  # shards in the newest file

    def latest(self) -> tuple[StateT | None, int]:
        """The newest complete checkpoint and its number of shards; (None, 0) if there is none.

        A damaged checkpoint is skipped in favour of an older one, or the start. The next `save` replaces it.
        """
        for folder, name in reversed(self._files()):
            try:
                state, self.saved_shards = self.parse(folder.read(name) or b""), shard_count(name)
                return state, self.saved_shards
            except MergeError as error:
                raise RunError(f"{name} in {folder} belongs to another run: {error}. Use another folder") from None
            except InputError:
                continue
        return None, 0

    def save(self, state: StateT, shards: int, *, force: bool = False) -> bool:
        """Writes the state if it is due; returns True if it was written."""
        if (
            self.folder is None
            or shards == self.saved_shards
            or not (force or time.monotonic() - self.saved_at >= self.interval)
        ):
            return False
        older = self._files()
        name = state_file(shards)
        self.folder.write(name, state.dump())
        self.folder.delete(stale for _, stale in older if stale != name)
        self.saved_at, self.saved_shards = time.monotonic(), shards
        return True

    def delete(self) -> None:
        """Deletes all checkpoints and shard files, including those of a killed run."""
        for folder, name in self._files():
            folder.delete([name])
        if self.folder:
            self.folder.clear(SHARDS, SHARD_FILE)
        self.saved_shards = None

    def _files(self) -> list[tuple[Folder, str]]:
        return [(self.folder, name) for name in state_files(self.folder)] if self.folder else []


class MergeProgress(Generic[StateT]):
    """The shards merged so far, always the first ones, with checks that none is lost or counted twice."""

    def __init__(self, checkpoint: Checkpoint[StateT], allow_missing: int) -> None:
        self.checkpoint, self.allow_missing = checkpoint, allow_missing
        self.state, self.merged_shards = checkpoint.latest()
        self.seen_shards = self.items = self.digests = 0

    @property
    def missing(self) -> int:
        return len(self.state.missing) if self.state is not None else 0

    def remaining(
        self, shards: Iterable[Sequence[ItemT]], report: ProgressCallback = no_report
    ) -> Iterator[tuple[int, Sequence[ItemT]]]:
        """The shards that are not merged yet, with their numbers; merged shards must match the data.

        The items of merged shards are reported at once, so that a bar begins where the earlier run stopped.
        """
        merged_before = self.merged_shards
        for shard in shards:
            if self.seen_shards == merged_before:
                self._require_same_data()
            number = self.seen_shards
            self.seen_shards, self.items = number + 1, self.items + len(shard)
            self.digests += sum(item.digest for item in shard)
            if number >= merged_before:
                yield number, shard
            else:
                report(len(shard), 0)

    def add(self, state: StateT) -> bool:
        """Merges the next shard in order; True if a checkpoint now holds it."""
        if self.state is None:
            self.state = state
        else:
            self.state.merge(state)
        self.merged_shards += 1
        self._require_missing_allowed()
        return self.checkpoint.save(self.state, self.merged_shards)

    def save(self) -> None:
        """Writes a checkpoint of the shards merged so far, for a later run to resume from."""
        if self.state is not None:
            self.checkpoint.save(self.state, self.merged_shards, force=True)

    def finish(self) -> StateT:
        """The merged state, once all shards are done."""
        if self.state is None:
            raise InputError("the data contain no examples; nothing was computed")
        self._require_same_data()
        self._require_missing_allowed()
        self.save()
        return self.state

    def _require_same_data(self) -> None:
        if self.state is not None and not (
            self.merged_shards == self.seen_shards and self.state.was_made_from(self.items, self.digests)
        ):
            raise RunError(
                "the data differ from those that the run in this folder began with; choose another folder for --out"
            )

    def _require_missing_allowed(self) -> None:
        if self.state is not None and len(missing := self.state.missing) > self.allow_missing:
            shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} of the examples could not be computed and were left out ({shown}), but only "
                f"{self.allow_missing} are allowed to be. Pass --allow-missing {len(missing)}, or use another folder"
            )

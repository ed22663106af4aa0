"""Leases: which process writes to a run folder. One process does; in a campaign, each scan has its own.

A lease is a file in the run folder, lease-00001.json. On disk, exactly one process succeeds in creating it. Its holder
writes it again every few seconds. A lease of a process on this machine that has ended is taken over at once. On another
machine nobody can see that, so a process that sees no change for a minute by its own clock takes over: it creates the
file with the next number. Clocks of different machines are never compared.

Two processes can write at once if one of them has stood still for a minute and then goes on, or if both create a file
at once in an object store. Both last until the next sign of life. Otherwise no order of steps leads there, as
tests/runs/test_lease_protocol.py shows by trying them all.
"""

import platform
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from layerwise.core.errors import RunError
from layerwise.core.files import HOST_ID, Folder
from layerwise.core.formats import json_bytes, parse_record
from layerwise.core.outputs import current_process, has_ended
from layerwise.core.progress import OnBatch, announce

LEASE_FILE = re.compile(r"lease-\d{5,}\.json")
BEAT, PATIENCE = 5.0, 60.0  # seconds between two signs of life, and without one before a folder is taken over


class LeaseLost(RunError):
    """Another process has taken the folder over, because this one gave no sign of life."""


def lease_files(folder: Folder) -> list[str]:
    """The leases in the folder of a scan, the valid one last."""
    return sorted((name for name in folder.names() if LEASE_FILE.fullmatch(name)), key=lease_number)


def lease_number(name: str) -> int:
    return int(name.partition(".")[0].rpartition("-")[2])


@dataclass
class Leases:
    """The leases of this process. Used as a context, it keeps them valid and gives them back at the end.

    Args:
        beat: seconds between signs of life.
        patience: seconds without one, before a scan is taken over.
        clock: a monotonic clock.
    """

    beat: float = BEAT
    patience: float = PATIENCE
    clock: Callable[[], float] = time.monotonic
    owner: str = field(default_factory=lambda: secrets.token_hex(8))
    held: dict[Folder, str] = field(default_factory=dict)  # the file of each lease
    lost: set[Folder] = field(default_factory=set)
    # Others' leases in a folder, and since when they are unchanged.
    seen: dict[Folder, dict[str, tuple[bytes, float]]] = field(default_factory=dict)
    beats: int = 0
    lock: Any = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Leases":
        threading.Thread(target=self._keep_alive, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        for folder in list(self.held):
            self.release(folder)

    def take(self, folder: Folder) -> bool:
        """True if the scan in that folder is now this process's; False if another one runs it."""
        names = lease_files(folder)
        if not all(self.is_abandoned(folder, name) for name in names):
            return False
        name = f"lease-{(lease_number(names[-1]) if names else 0) + 1:05d}.json"
        if not folder.create(name, self.content()) or not self.is_own(folder, name):
            return False
        # This process may have stood still since its first look, while others took the folder and deleted those files.
        # Of two processes that create a file and then look again, one sees the other.
        others = [other for other in lease_files(folder) if other != name]
        if not all(self.is_abandoned(folder, other) for other in others):
            folder.delete([name])
            return False
        folder.delete(others)
        with self.lock:
            self.held[folder] = name
        return True

    def release(self, folder: Folder) -> None:
        """Gives a lease back."""
        with self.lock:  # otherwise a sign of life could follow, and the lease would be there again
            name = self.held.pop(folder, None)
            if name is not None and folder not in self.lost:
                with suppress(OSError):  # a disk that failed: the next process sees that this one has ended
                    folder.delete([name])

    def require(self, folder: Folder) -> None:
        """Raises if another process has taken the scan over."""
        if folder in self.lost:
            raise LeaseLost(f"another process has taken over {folder}, because this one gave no sign of life")

    def is_abandoned(self, folder: Folder, name: str) -> bool:
        """True if the process that wrote this lease is gone, or has given no sign of life for too long."""
        content = folder.read(name)
        if content is None:  # it was given back a moment ago; the next attempt will find out
            return False
        if is_of_dead_process(content):
            return True
        leases = self.seen.setdefault(folder, {})
        before, since = leases.get(name, (b"", 0.0))
        if content != before:
            leases[name] = content, self.clock()
            return False
        return self.clock() - since > self.patience

    def shows_life(self, folder: Folder) -> bool:
        """True if another process's lease has changed since it was first seen, or is gone."""
        before, names = self.seen.get(folder), lease_files(folder)
        if not names or not before:
            return not names
        return names[-1] not in before or folder.read(names[-1]) != before[names[-1]][0]

    def is_own(self, folder: Folder, name: str) -> bool:
        """True if this process wrote the file. An object store may let two create it; the one who wrote last has it."""
        return self.owner.encode() in (folder.read(name) or b"")

    def content(self) -> bytes:
        holder = {"process": current_process(), "machine": platform.node()}
        return json_bytes({"owner": self.owner, "beats": self.beats, **holder})

    def _keep_alive(self) -> None:
        while not self.ended.wait(self.beat):
            self.beats += 1
            for folder in list(self.held):
                with self.lock:
                    if folder in self.held:
                        self._sign(folder, self.held[folder])

    def _sign(self, folder: Folder, name: str) -> None:
        try:
            if lease_files(folder)[-1:] != [name] or not self.is_own(folder, name):
                self.lost.add(folder)
            else:
                folder.write(name, self.content())
        except Exception:  # of the disk or the store: the next sign of life may reach it
            return


def is_of_dead_process(content: bytes) -> bool:
    """True if a lease was written on this machine by a process that does not run any more."""
    try:
        return has_ended(parse_record(content, "a lease").get("process"))
    except RunError:
        return False


@contextmanager
def sole_writer(folder: Folder | None, leases: Leases | None = None) -> Iterator[Callable[[], None]]:
    """Inside, this process is the only one that writes a run to the folder; raises RunError that says who else does.

    Gives a function that raises LeaseLost if another process has taken the folder over meanwhile. The folder must be
    claimed already. Without a folder, nothing is held.
    """
    if folder is None:
        yield lambda: None
        return
    with leases or Leases() as held:
        take_or_refuse(folder, held)
        yield lambda: held.require(folder)


def while_held(require_lease: Callable[[], None], on_batch: Callable[[int, int], None]) -> OnBatch:
    """Reports progress as long as the lease is held, and raises LeaseLost from then on."""

    def report(items: int, tokens: int = 0, /) -> None:
        require_lease()
        on_batch(items, tokens)

    return report


def take_or_refuse(folder: Folder, leases: Leases) -> None:
    """Takes the lease of the folder. Raises if its holder is alive; waits to see it where only time can tell."""
    waiting = False
    while not leases.take(folder):
        names = lease_files(folder)
        content = folder.read(names[-1]) if names else None
        if content is None:  # it was given back a moment ago
            continue
        if is_alive(content) or (waiting and leases.shows_life(folder)):
            raise RunError(
                f"{holder_of(content)} is writing to {folder}; wait until it has ended, or choose another folder for "
                "--out"
            )
        if not waiting:
            announce(f"{folder} was last written by {holder_of(content)}; waiting to see whether it has ended")
        waiting = True
        time.sleep(leases.beat / 4)


def is_alive(content: bytes) -> bool:
    """True if a lease was written on this machine by a process that still runs."""
    try:
        process = parse_record(content, "a lease").get("process")
        return isinstance(process, dict) and process.get("host") == HOST_ID and not has_ended(process)
    except RunError:
        return False


def holder_of(content: bytes) -> str:
    """Who holds a lease, for messages."""
    try:
        record = parse_record(content, "a lease")
        process = record.get("process")
        pid = process.get("pid") if isinstance(process, dict) else None
    except RunError:
        return "another process"
    where = "this machine" if is_alive(content) else str(record.get("machine") or "another machine")[:100]
    return f"process {pid} on {where}" if isinstance(pid, int) else f"a process on {where}"

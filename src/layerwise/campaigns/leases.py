"""Leases: which process runs which scan, so that any number of processes work on one campaign without a common lock.

A lease is a file in the folder of a scan, lease-00001.json. Exactly one process succeeds in creating it. Its holder
writes it again every few seconds. A process that sees no such change for a minute by its own clock takes the scan
over: it creates the file with the next number. Clocks of different machines are never compared.
"""

import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from layerwise.core.errors import RunError
from layerwise.core.files import Folder
from layerwise.core.formats import json_bytes, parse_record
from layerwise.core.outputs import current_process, has_ended

LEASE_FILE = re.compile(r"lease-\d{5,}\.json")
BEAT, PATIENCE = 5.0, 60.0  # seconds between two signs of life, and without one before a scan is taken over


class LeaseLost(RunError):
    """Another process has taken the scan over, because this one gave no sign of life."""


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
    seen: dict[Folder, tuple[bytes, float]] = field(default_factory=dict)  # others' leases, and since when unchanged
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
        if names and not self.is_abandoned(folder, names[-1]):
            return False
        name = f"lease-{(lease_number(names[-1]) if names else 0) + 1:05d}.json"
        # An object store may let two processes create the file: then it is that of the one who wrote last.
        if not folder.create(name, self.content()) or self.owner.encode() not in (folder.read(name) or b""):
            return False
        folder.delete(names)
        with self.lock:
            self.held[folder] = name
        return True

    def release(self, folder: Folder) -> None:
        """Gives a lease back."""
        with self.lock:  # otherwise a sign of life could follow, and the lease would be there again
            name = self.held.pop(folder, None)
            if name is not None and folder not in self.lost:
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
        before, since = self.seen.get(folder, (b"", 0.0))
        if content != before:
            self.seen[folder] = content, self.clock()
            return False
        return self.clock() - since > self.patience

    def shows_life(self, folder: Folder) -> bool:
        """True if another process's lease has changed since it was first seen, or is gone."""
        before, _ = self.seen.get(folder, (b"", 0.0))
        names = lease_files(folder)
        return not names or (before != b"" and folder.read(names[-1]) != before)

    def content(self) -> bytes:
        return json_bytes({"owner": self.owner, "process": current_process(), "beats": self.beats})

    def _keep_alive(self) -> None:
        while not self.ended.wait(self.beat):
            self.beats += 1
            for folder in list(self.held):
                with self.lock:
                    if folder in self.held:
                        self._sign(folder, self.held[folder])

    def _sign(self, folder: Folder, name: str) -> None:
        try:
            if lease_files(folder)[-1:] != [name]:
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

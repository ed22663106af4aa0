"""Counts how often each text was seen before, in about twenty bytes per text."""

from array import array
from collections import Counter


class Occurrences:
    """Counts 64-bit hashes. Hashes seen once are in a compact table, repeated ones in a dictionary."""

    def __init__(self) -> None:
        self.table, self.used = array("Q", bytes(8 * 1024)), 0
        self.repeated: Counter[int] = Counter()

    def count_and_add(self, number: int) -> int:
        """How often this number was seen before; also records it."""
        number = number or 1  # 0 marks a free slot
        if (slot := self._free_slot(number)) is None:
            self.repeated[number] += 1
            return self.repeated[number]
        self.table[slot] = number
        self.used += 1
        if 5 * self.used > 3 * len(self.table):
            self._grow()
        return 0

    def _free_slot(self, number: int) -> int | None:
        """The free slot for a new number; None if the number is already in the table."""
        table, mask = self.table, len(self.table) - 1
        slot = number & mask
        while (entry := table[slot]) != number:
            if not entry:
                return slot
            slot = (slot + 1) & mask
        return None

    def _grow(self) -> None:
        old, self.table = self.table, array("Q", bytes(16 * len(self.table)))
        for number in old:
            if number and (slot := self._free_slot(number)) is not None:
                self.table[slot] = number

"""Counts how often each text was seen before, in about twenty bytes per text."""

from array import array
from collections import Counter


class Occurrences:
    """Counts 64-bit hashes. Hashes seen once are in a compact table, repeated ones in a dictionary."""

    def __init__(self) -> None:
        self.table, self.filled = array("Q", bytes(8 * 1024)), 0
        self.repeated: Counter[int] = Counter()

    def before(self, number: int) -> int:
        """How often this number was seen before; also records it."""
        number = number or 1  # 0 marks a free slot
        if (place := self._place(number)) is None:
            self.repeated[number] += 1
            return self.repeated[number]
        self.table[place] = number
        self.filled += 1
        if 5 * self.filled > 3 * len(self.table):
            self._grow()
        return 0

    def _place(self, number: int) -> int | None:
        """The free slot for a new number; None if the number is already in the table."""
        table, last = self.table, len(self.table) - 1
        place = number & last
        while (there := table[place]) != number:
            if not there:
                return place
            place = (place + 1) & last
        return None

    def _grow(self) -> None:
        old, self.table = self.table, array("Q", bytes(16 * len(self.table)))
        for number in old:
            if number and (place := self._place(number)) is not None:
                self.table[place] = number

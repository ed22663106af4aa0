"""Occurrences: how often each text came by before, in some twenty bytes a text, so that long streams stay small."""

from array import array
from collections import Counter


class Occurrences:
    """Counts 64-bit hashes. Those seen once stand in a table of plain numbers, only repeated ones in a dictionary."""

    def __init__(self) -> None:
        self.table, self.filled = array("Q", bytes(8 * 1024)), 0
        self.repeated: Counter[int] = Counter()

    def before(self, number: int) -> int:
        """How often this number was given before."""
        number = number or 1  # 0 marks a free place
        if (place := self._place(number)) is None:
            self.repeated[number] += 1
            return self.repeated[number]
        self.table[place] = number
        self.filled += 1
        if 5 * self.filled > 3 * len(self.table):
            self._grow()
        return 0

    def _place(self, number: int) -> int | None:
        """The free place where a new number goes; None where it is in the table already."""
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

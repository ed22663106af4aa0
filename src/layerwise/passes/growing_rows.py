"""Rows that a pass keeps of each batch, in one block of memory."""

from collections.abc import Iterable

import torch
from torch import Tensor

FIRST_BLOCK = 2**20  # bytes


class GrowingRows:
    """Rows (D,) that are added batch by batch; the block that holds them doubles when it is full.

    If they were kept as many small tensors, these would lie between the large ones that each batch frees, and break up
    the heap: the memory of a process would grow with every batch.
    """

    def __init__(self) -> None:
        self.count = 0
        self.block: Tensor | None = None

    def add(self, rows: Tensor) -> range:
        """Copies rows (B, D) to the CPU, and returns their places."""
        block = self.block
        if block is None:
            row_bytes = max(1, rows.shape[1] * rows.element_size())
            block = self.block = torch.empty(max(1, FIRST_BLOCK // row_bytes), rows.shape[1], dtype=rows.dtype)
        needed = self.count + len(rows)
        if needed > len(block):
            larger = torch.empty(max(needed, 2 * len(block)), block.shape[1], dtype=block.dtype)
            larger[: self.count] = block[: self.count]
            block = self.block = larger
        block[self.count : needed] = rows
        places = range(self.count, needed)
        self.count = needed
        return places

    def take(self, places: Iterable[int]) -> Tensor:
        """The rows at these places, in that order."""
        assert self.block is not None, "no rows were added"
        return self.block[torch.tensor([*places], dtype=torch.long)]

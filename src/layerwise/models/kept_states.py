"""Hidden states of many batches between two blocks: in memory up to a bound, the others in scratch files."""

import mmap
import tempfile

import torch
from torch import Tensor

IN_MEMORY, ON_DISK = 256 * 2**20, 8 * 2**30  # bytes


class KeptStates:
    """One tensor per batch; a later one of the same batch takes its place."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self.left = in_memory  # bytes
        self.tensors: dict[int, Tensor] = {}

    def put(self, place: int, hidden: Tensor) -> None:
        old = self.tensors.get(place)
        if old is None or old.shape != hidden.shape or old.dtype != hidden.dtype:
            old = self.tensors[place] = self.room(hidden)
        old.copy_(hidden)

    def take(self, place: int) -> Tensor:
        # A copy: blocks may change what they are given.
        return self.tensors[place].clone()

    def room(self, hidden: Tensor) -> Tensor:
        """Memory for a tensor like this one, or a file that is mapped into memory."""
        if hidden.nbytes <= self.left:
            self.left -= hidden.nbytes
            return torch.empty_like(hidden, device="cpu", memory_format=torch.contiguous_format)
        return torch.frombuffer(scratch(hidden.nbytes), dtype=hidden.dtype).view(hidden.shape)


def scratch(size: int) -> mmap.mmap:
    """A mapped file without a name, which the system deletes with its last user, however that one ends."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(size))  # so that a full disk is noticed here: later it would end the process
        file.flush()
        return mmap.mmap(file.fileno(), size)

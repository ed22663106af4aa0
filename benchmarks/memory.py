"""Which tensors a call of torch makes, and how many bytes of them are alive at once."""

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def new_tensors(result: object, args: object, kwargs: object) -> list[Tensor]:
    """The tensors in a result with memory of their own. A view shows memory that was there: of a weight, say."""
    given = {tensor.untyped_storage()._cdata for tensor in tensors((args, kwargs))}
    return [tensor for tensor in tensors(result) if tensor.untyped_storage()._cdata not in given]


def tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive and were made inside this mode; `peak` is the most at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self.seen: Counter[int] = Counter()

    def __torch_dispatch__(self, function: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in new_tensors(result, args, kwargs):
            self.add(tensor.untyped_storage())
        return result

    def add(self, storage: torch.UntypedStorage) -> None:
        at = storage._cdata
        if self.seen[at]:
            return
        size = storage.nbytes()
        self.seen[at] += 1
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self.gone, at, size)

    def gone(self, at: int, size: int) -> None:
        self.seen[at] -= 1
        self.alive -= size

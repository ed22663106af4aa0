"""Taps: hooks that pass on each layer's hidden states during the forward pass, without storing them."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from layerwise.core.errors import ModelError
from layerwise.models.anatomy import Anatomy

OnLayer = Callable[[int, Tensor], None]

# Hooks fire for every forward pass, in any thread, so only one tapped pass per model runs at a time.
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_LOCKS_LOCK = Lock()


class _Enough(Exception):
    """Raised by the deepest tap to skip the remaining layers."""


@contextmanager
def tapped(anatomy: Anatomy, layers: Collection[int], on_layer: OnLayer) -> Iterator[None]:
    """Calls on_layer(k, hidden (B, T, D)) for each chosen layer while the model runs inside this context.

    Layer 0 is the input of block 1; layer k is the output of block k. The forward pass stops after the deepest layer.
    Hooks are always removed, even if the pass fails. A second thread that taps the same model waits for the first.
    """
    wanted, deepest = set(layers), max(layers)
    calls = 0  # number of block calls in this pass

    def give(layer: int, hidden: Tensor) -> None:
        if layer in wanted:
            on_layer(layer, hidden)
        if layer == deepest:
            raise _Enough

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if calls == 0:
            give(0, entering(args, kwargs))

    def after(number: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            nonlocal calls
            calls += 1
            give(calls if anatomy.shared else number, leaving(output))

        return hook

    with lock_of(anatomy.blocks[0]):
        handles = [anatomy.blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
        handles += [block.register_forward_hook(after(k)) for k, block in enumerate(anatomy.blocks, start=1)]
        try:
            yield
        except _Enough:
            pass
        finally:
            for handle in handles:
                handle.remove()


def lock_of(module: nn.Module) -> RLock:
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(module, RLock())


def normed(anatomy: Anatomy, hidden: Tensor) -> Tensor:
    """Applies the model's final norm to hidden states; raises if it has none."""
    if anatomy.final_norm is None:
        raise ModelError("this model has no final norm, so its last layer is its output; use norm raw")
    weight = next(anatomy.final_norm.parameters(), None)
    out: Tensor = anatomy.final_norm(hidden if weight is None else hidden.to(weight.device))
    return out


def final_states(anatomy: Anatomy, hidden: Tensor) -> Tensor:
    """The model's output from the last block's output: after the final norm, if there is one."""
    return hidden if anatomy.final_norm is None else normed(anatomy, hidden)


def entering(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states among a block's arguments: by name, or the first float tensor."""
    named = kwargs.get("hidden_states")
    for value in (named, *args, *kwargs.values()):
        if isinstance(value, Tensor) and torch.is_floating_point(value):
            return value
    raise ModelError(
        "found no hidden states among the first block's arguments; this architecture is not supported yet, please open "
        "an issue"
    )


def leaving(output: Any) -> Tensor:
    """The hidden states in a block's output: the output itself or the first of a tuple."""
    hidden = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(hidden, Tensor):
        raise ModelError(f"a block returned {type(hidden).__name__}, not a tensor of hidden states")
    return hidden

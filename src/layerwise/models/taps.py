"""Taps: hooks that hand over each layer's hidden states as the forward pass makes them, and let them go."""

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

# Hooks fire for every pass through a module, whoever started it: one tapped pass at a time for each model.
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_LOCKS_LOCK = Lock()


class _Enough(Exception):
    """Raised by the deepest tap: what lies above need not be computed."""


@contextmanager
def tapped(anatomy: Anatomy, layers: Collection[int], on_layer: OnLayer) -> Iterator[None]:
    """Calls on_layer(k, hidden (B, T, D)) for each chosen layer while the model runs inside this context.

    Layer 0 is what enters block 1; layer k is what block k puts out. The forward pass ends early after the
    deepest layer. Hooks are removed on the way out, also when the pass fails. A second thread that taps the same
    model waits until the first is done.
    """
    wanted, deepest = set(layers), max(layers)
    calls = 0  # of shared blocks, counted over the pass

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
    """The model's final norm applied to a layer's hidden states; raises where the family has none."""
    if anatomy.final_norm is None:
        raise ModelError("this model has no final norm: its last layer is its usual output; use norm raw")
    weight = next(anatomy.final_norm.parameters(), None)
    out: Tensor = anatomy.final_norm(hidden if weight is None else hidden.to(weight.device))
    return out


def final_states(anatomy: Anatomy, hidden: Tensor) -> Tensor:
    """What the model itself puts out, from what its last block did: behind the final norm, where there is one."""
    return hidden if anatomy.final_norm is None else normed(anatomy, hidden)


def entering(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states among a block's arguments: by name, else the first tensor of floats."""
    named = kwargs.get("hidden_states")
    for value in (named, *args, *kwargs.values()):
        if isinstance(value, Tensor) and torch.is_floating_point(value):
            return value
    raise ModelError("the first block was called without hidden states; this family needs a file in models/families")


def leaving(output: Any) -> Tensor:
    """The hidden states in a block's output: the output itself or the first of a tuple."""
    hidden = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(hidden, Tensor):
        raise ModelError(f"a block returned {type(hidden).__name__}, not a tensor of hidden states")
    return hidden

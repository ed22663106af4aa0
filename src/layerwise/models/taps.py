"""Taps: hooks that pass on each layer's hidden states during the forward pass, without storing them."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from layerwise.core.errors import ModelError
from layerwise.models.families.family import Point
from layerwise.models.find_blocks import ModelStructure

OnLayer = Callable[[int, Tensor], None]
OnPoint = Callable[[int, str, Tensor], None]

# Hooks fire for every forward pass, in any thread, so only one tapped pass per model runs at a time.
_LOCKS: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_LOCKS_LOCK = Lock()


class _StopForward(Exception):
    """Raised by the deepest tap to skip the remaining layers."""


@contextmanager
def tapped(
    structure: ModelStructure, layers: Collection[int], on_layer: OnLayer, on_point: OnPoint | None = None
) -> Iterator[None]:
    """Calls on_layer(k, hidden (B, T, D)) for each chosen layer while the model runs inside this context.

    Layer 0 is the input of block 1; layer k is the output of block k. With `on_point`, on_point(k, name, hidden) is
    also called for each point inside block k. The forward pass stops after the deepest layer. Hooks are always
    removed, even if the pass fails. A second thread that taps the same model waits for the first.
    """
    chosen, deepest = set(layers), max(layers)
    calls = 0  # number of block calls in this pass

    def deliver(layer: int, hidden: Tensor) -> None:
        if layer in chosen:
            on_layer(layer, hidden)
        if layer == deepest:
            raise _StopForward

    def pre_hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if calls == 0:
            deliver(0, hidden_from_arguments(args, kwargs))

    def make_hook(number: int) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            nonlocal calls
            calls += 1
            deliver(calls if structure.shares_blocks else number, hidden_from_output(output))

        return hook

    def hook_point(number: int, block: nn.Module, point: Point, deliver_point: OnPoint) -> Any:
        def read(hidden: Tensor) -> None:
            layer = calls + 1 if structure.shares_blocks else number
            if layer in chosen:
                deliver_point(layer, point.name, hidden)

        part = block.get_submodule(point.module)
        if point.side == "input":
            before = lambda module, args, kwargs: read(hidden_from_arguments(args, kwargs))  # noqa: E731
            return part.register_forward_pre_hook(before, with_kwargs=True)
        return part.register_forward_hook(lambda module, args, output: read(hidden_from_output(output)))

    points = () if on_point is None else structure.require_layout().inner_points
    with model_lock(structure.blocks[0]):
        handles = [structure.blocks[0].register_forward_pre_hook(pre_hook, with_kwargs=True)]
        for number, block in enumerate(structure.blocks, start=1):
            handles += [hook_point(number, block, point, on_point) for point in points if on_point is not None]
            handles.append(block.register_forward_hook(make_hook(number)))
        try:
            yield
        except _StopForward:
            pass
        finally:
            for handle in handles:
                handle.remove()


def model_lock(module: nn.Module) -> RLock:
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(module, RLock())


def apply_final_norm(structure: ModelStructure, hidden: Tensor) -> Tensor:
    """Applies the model's final norm to hidden states; raises if it has none."""
    if structure.final_norm is None:
        raise ModelError("this model has no final norm, so its last layer is its output; use norm raw")
    weight = next(structure.final_norm.parameters(), None)
    out: Tensor = structure.final_norm(hidden if weight is None else hidden.to(weight.device))
    return out


def model_output(structure: ModelStructure, hidden: Tensor) -> Tensor:
    """The model's output from the last block's output: after the final norm, if there is one."""
    return hidden if structure.final_norm is None else apply_final_norm(structure, hidden)


def hidden_from_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The hidden states among a block's arguments: by name, or the first float tensor."""
    hidden = kwargs.get("hidden_states")
    for value in (hidden, *args, *kwargs.values()):
        if isinstance(value, Tensor) and torch.is_floating_point(value):
            return value
    raise ModelError(
        "found no hidden states among the first block's arguments; this architecture is not supported yet, please open "
        "an issue"
    )


def hidden_from_output(output: Any) -> Tensor:
    """The hidden states in a block's output: the output itself or the first of a tuple."""
    hidden = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(hidden, Tensor):
        raise ModelError(f"a block returned {type(hidden).__name__}, not a tensor of hidden states")
    return hidden

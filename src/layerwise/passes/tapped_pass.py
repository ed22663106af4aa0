"""The tapped pass: runs each batch once and hands each chosen layer to a consumer, without storing it."""

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from layerwise.core.errors import ModelError, TooLarge
from layerwise.inputs.processor import Prepared
from layerwise.passes.batches import Batch, make_batch, make_groups
from layerwise.passes.hidden_states import HiddenStates


class Consumer(Protocol):
    """Receives the layers of a pass. `on_layer` is called for each layer of a batch; `commit` commits the batch."""

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        """hidden (B, V, T, D) of one layer, or of a point inside its block; reduce it here, since it is not kept."""

    def commit(self, batch: Batch) -> None:
        """The batch is complete: commit what was read from it."""

    def discard(self) -> None:
        """The batch failed: discard what was read from it."""


def run_pass(
    network: HiddenStates,
    examples: Sequence[Prepared[object]],
    layers: Collection[int],
    budget: int,
    consumer: Consumer,
    *,
    inside: bool = False,
) -> None:
    """Runs all examples in batches of at most `budget` positions; a batch that runs out of memory is halved.

    With `inside`, the consumer also receives the points inside each chosen block.
    """
    for group in make_groups(examples, budget):
        waiting = [group]
        while waiting:
            part = waiting.pop()
            try:
                run_batch(network, make_batch(network, part), layers, consumer, inside=inside)
                continue
            except RuntimeError as error:  # torch.OutOfMemoryError; the CPU allocator raises a plain RuntimeError
                consumer.discard()
                if not is_out_of_memory(error):
                    raise
                if len(part) == 1:
                    raise TooLarge(
                        f"one example of {len(part[0].sizes)} x {part[0].max_size} tokens does not fit into the memory "
                        f"of {network.device}; try a smaller --max-length, --dtype bfloat16, or a larger device"
                    ) from error
            if network.device.type != "cpu":  # outside the handler, so that the failed batch's tensors are freed
                torch.accelerator.empty_cache()
            half = len(part) // 2
            waiting += [part[half:], part[:half]]  # the first half is next


def run_batch(
    network: HiddenStates, batch: Batch, layers: Collection[int], consumer: Consumer, *, inside: bool = False
) -> None:
    examples, views = len(batch.examples), batch.views

    def on_point(number: int, point: str, hidden: Tensor) -> None:
        if hidden.dim() == 2:  # some blocks flatten the tokens of a batch
            hidden = hidden.view(examples * views, -1, hidden.shape[-1])
        deliver(number, hidden, point)

    def deliver(number: int, hidden: Tensor, point: str = "") -> None:
        real = batch.masks(hidden.shape[-2]).real
        if hidden.dim() != 3 or hidden.shape[:2] != (examples * views, real.shape[-1]):
            raise ModelError(
                f"{place_name(number, point)} has hidden states of shape {tuple(hidden.shape)}; expected "
                f"({examples * views}, {real.shape[-1]}, width). This architecture is not supported yet"
            )
        hidden = hidden.view(examples, views, real.shape[-1], -1)
        consumer.on_layer(number, hidden if hidden.device == real.device else hidden.to(real.device), batch, point)

    network.read_layers(batch.inputs, layers, deliver, on_point if inside else None)
    consumer.commit(batch)


def place_name(layer: int, point: str) -> str:
    """`layer 3`, or `layer 3 mlp_output` inside its block."""
    return f"layer {layer} {point}".rstrip()


def is_out_of_memory(error: RuntimeError) -> bool:
    """True for the different out-of-memory errors of CPU and accelerators."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message or "can't allocate memory" in message

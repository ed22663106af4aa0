"""The tapped pass: runs each batch once and hands each chosen layer to a consumer, without storing it."""

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from layerwise.core.errors import ModelError, TooLarge
from layerwise.inputs.processor import Prepared
from layerwise.models.network import Network
from layerwise.models.taps import tapped
from layerwise.passes.batches import Batch, make_batch, make_groups


class Consumer(Protocol):
    """Receives the layers of a pass. `on_layer` is called for each layer of a batch; `commit` commits the batch."""

    def on_layer(self, number: int, hidden: Tensor, batch: Batch) -> None:
        """hidden (B, V, T, D) of one layer; reduce it here, since it is not kept."""

    def commit(self, batch: Batch) -> None:
        """The batch is complete: commit what was read from it."""

    def discard(self) -> None:
        """The batch failed: discard what was read from it."""


def run_pass(
    network: Network, examples: Sequence[Prepared[object]], layers: Collection[int], budget: int, consumer: Consumer
) -> None:
    """Runs all examples in batches of at most `budget` positions; a batch that runs out of memory is halved."""
    for group in make_groups(examples, budget):
        run_group(network, group, layers, consumer)


def run_group(network: Network, group: Sequence[Prepared[object]], layers: Collection[int], consumer: Consumer) -> None:
    try:
        run_batch(network, make_batch(network, group), layers, consumer)
        return
    except RuntimeError as error:  # includes torch.OutOfMemoryError; the CPU allocator raises a plain RuntimeError
        consumer.discard()
        if not is_out_of_memory(error):
            raise
        if len(group) == 1:
            raise TooLarge(
                f"one example of {len(group[0].sizes)} x {group[0].max_size} tokens does not fit into the memory of "
                f"{network.device}; try a smaller --max-length, --dtype bfloat16, or a larger device"
            ) from error
    if network.device.type != "cpu":
        torch.accelerator.empty_cache()
    half = len(group) // 2  # outside the handler, so that the failed batch's tensors are freed
    run_group(network, group[:half], layers, consumer)
    run_group(network, group[half:], layers, consumer)


def run_batch(network: Network, batch: Batch, layers: Collection[int], consumer: Consumer) -> None:
    examples, views = len(batch.examples), batch.views

    def on_layer(number: int, hidden: Tensor) -> None:
        real = batch.masks(hidden.shape[-2]).real
        if hidden.dim() != 3 or hidden.shape[:2] != (examples * views, real.shape[-1]):
            raise ModelError(
                f"layer {number} has hidden states of shape {tuple(hidden.shape)}; expected "
                f"({examples * views}, {real.shape[-1]}, width). This architecture is not supported yet"
            )
        hidden = hidden.view(examples, views, real.shape[-1], -1)
        consumer.on_layer(number, hidden if hidden.device == real.device else hidden.to(real.device), batch)

    with torch.inference_mode(), tapped(network.structure, layers, on_layer):
        network.forward(batch.inputs)
    consumer.commit(batch)


def is_out_of_memory(error: RuntimeError) -> bool:
    """True for the different out-of-memory errors of CPU and accelerators."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message or "can't allocate memory" in message

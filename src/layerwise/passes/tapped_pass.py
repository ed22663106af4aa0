"""The tapped pass: runs each batch once and hands each chosen layer to a consumer, without storing it."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from layerwise.core.errors import ModelError, TooLarge
from layerwise.inputs.processor import Prepared
from layerwise.models.streamed import StreamedNetwork
from layerwise.passes.batches import Batch, make_batch, make_groups
from layerwise.passes.hidden_states import HiddenStates


class Consumer(Protocol):
    """Receives the layers of a pass: all of one batch after another or, of a streamed model, each layer of all batches.

    Numbers do not depend on which, because what belongs to a layer gets the batches in the same order.
    """

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        """hidden (B, V, T, D) of one layer, or of a point inside its block; reduce it here, since it is not kept."""

    def keep(self, batch: Batch) -> None:
        """Keep what was read of this batch since the last call."""

    def finish(self, batch: Batch) -> None:
        """All layers of the batch were kept: count it."""

    def discard(self) -> None:
        """The batch failed: discard what was read since the last call of `keep`."""


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
    groups = make_groups(examples, budget)
    if isinstance(network, StreamedNetwork):
        run_streamed(network, groups, layers, consumer, inside=inside)
        return
    for group in groups:
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
                    raise too_large(network, part, "a smaller --max-length, --dtype bfloat16") from error
            if network.device.type != "cpu":  # outside the handler, so that the failed batch's tensors are freed
                torch.accelerator.empty_cache()
            half = len(part) // 2
            waiting += [part[half:], part[:half]]  # the first half is next


def run_batch(
    network: HiddenStates, batch: Batch, layers: Collection[int], consumer: Consumer, *, inside: bool = False
) -> None:
    def on_point(number: int, point: str, hidden: Tensor) -> None:
        deliver(consumer, batch, number, hidden, point)

    network.read_layers(batch.inputs, layers, partial(deliver, consumer, batch), on_point if inside else None)
    consumer.keep(batch)
    consumer.finish(batch)


def run_streamed(
    network: StreamedNetwork,
    groups: Iterable[Sequence[Prepared[object]]],
    layers: Collection[int],
    consumer: Consumer,
    *,
    inside: bool = False,
) -> None:
    """Reads each block once for as many batches as the network keeps between two blocks."""
    batches = (make_batch(network, group) for group in groups)
    for several in network.rounds(batches):
        try:
            network.read_batches(
                [batch.inputs for batch in several], layers, partial(deliver_one, consumer, several), inside=inside
            )
        except RuntimeError as error:  # a batch cannot be halved: other layers of it were read
            consumer.discard()
            if not is_out_of_memory(error):
                raise
            raise too_large(network, several[0].examples, "a smaller --batch-tokens") from error
        for batch in several:
            consumer.finish(batch)


def deliver_one(
    consumer: Consumer, batches: Sequence[Batch], place: int, number: int, hidden: Tensor, point: str = ""
) -> None:
    """Hands on a layer of the batch at this place, which keeps it at once."""
    deliver(consumer, batches[place], number, hidden, point)
    consumer.keep(batches[place])


def deliver(consumer: Consumer, batch: Batch, number: int, hidden: Tensor, point: str = "") -> None:
    """Hands hidden states (B * V, T, D) of a layer, or of a point inside its block, to the consumer."""
    examples, views = len(batch.examples), batch.views
    if point and hidden.dim() == 2:  # some blocks flatten the tokens of a batch
        hidden = hidden.view(examples * views, -1, hidden.shape[-1])
    real = batch.masks(hidden.shape[-2]).real
    if hidden.dim() != 3 or hidden.shape[:2] != (examples * views, real.shape[-1]):
        raise ModelError(
            f"{place_name(number, point)} has hidden states of shape {tuple(hidden.shape)}; expected "
            f"({examples * views}, {real.shape[-1]}, width). This architecture is not supported yet"
        )
    hidden = hidden.view(examples, views, real.shape[-1], -1)
    consumer.on_layer(number, hidden if hidden.device == real.device else hidden.to(real.device), batch, point)


def too_large(network: HiddenStates, examples: Sequence[Prepared[object]], remedies: str) -> TooLarge:
    """The error where a batch of these examples, longest first, does not fit into memory."""
    count = "one example" if len(examples) == 1 else f"a batch of {len(examples)} examples"
    return TooLarge(
        f"{count} of {len(examples[0].sizes)} x {examples[0].max_size} tokens does not fit into the memory of "
        f"{network.device}; try {remedies}, or a larger device"
    )


def place_name(layer: int, point: str) -> str:
    """`layer 3`, or `layer 3 mlp_output` inside its block."""
    return f"layer {layer} {point}".rstrip()


def is_out_of_memory(error: RuntimeError) -> bool:
    """True for the different out-of-memory errors of CPU and accelerators."""
    message = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in message or "can't allocate memory" in message

"""How long each layer takes: the time until it is computed, as a share of a whole forward pass."""

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.models.taps import tapped
from layerwise.passes.batches import Batch, make_batch, make_groups, network_processor

TIMED_EXAMPLES = 16
TIMED_LENGTH = 128  # tokens
TIMED_POSITIONS = 512  # of the one batch that is timed, so that a large model takes seconds, not minutes
REPEATS = 5
SECONDS = 3.0  # after which no further repeat is started


def relative_layer_times(network: Network, payloads: Sequence[str], *, repeats: int = REPEATS) -> tuple[float, ...]:
    """For each layer from 0 to the last: the time until it is computed over the time of the whole forward pass.

    One batch of up to 16 examples runs through the model a few times; each share is the median over these passes. The
    shares never fall from layer to layer, and 1.0 is the whole pass with whatever follows the last block.
    """
    examples = [Example(str(i), payload) for i, payload in enumerate(payloads[:TIMED_EXAMPLES])]
    prepared = network_processor(network).prepare(examples, min(TIMED_LENGTH, network.max_length))
    batch = make_batch(network, next(make_groups(prepared, TIMED_POSITIONS)))
    time_layers(network, batch)  # a first pass is slower: memory is allocated, kernels are chosen
    started, passes = time.perf_counter(), [time_layers(network, batch)]
    while len(passes) < repeats and time.perf_counter() - started < SECONDS:
        passes.append(time_layers(network, batch))
    return tuple(round(statistics.median(shares), 3) for shares in zip(*passes, strict=True))


def time_layers(network: Network, batch: Batch) -> list[float]:
    """The same for one pass."""
    reached = []

    def on_layer(number: int, hidden: Tensor) -> None:
        wait_for(hidden.device)
        reached.append(time.perf_counter())

    layers = range(network.depth + 2)  # one more than there are: the pass is not stopped after the last block
    started = time.perf_counter()
    with torch.inference_mode(), tapped(network.structure, layers, on_layer):
        network.forward(batch.inputs)
    wait_for(network.device)
    whole = time.perf_counter() - started
    return [(moment - started) / whole for moment in reached]


def wait_for(device: torch.device) -> None:
    """Waits until the device has done what it was given: an accelerator works while Python goes on."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

"""How long each layer takes: the time until it is computed, as a share of the whole model's."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from layerwise.inputs.source import Example, Payload
from layerwise.inputs.timed_texts import TIMED_TEXTS, room_for_text, timed_texts
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe
from layerwise.models.streamed import StreamedNetwork
from layerwise.models.taps import tapped
from layerwise.passes.batches import make_batch, make_groups, network_processor
from layerwise.passes.timing import Measure, RelativeTime, clock_of, relative_times

WHOLE = -1  # the pass to its end, among its layers
TIMED_MEDIA = 8  # clips or images per call


def relative_layer_times(
    network: Network, texts: Sequence[str], template: str, max_length: int
) -> dict[int | None, tuple[RelativeTime, ...]]:
    """By the number of tokens of a text, for each layer from 0 on: the time until it is computed within the template.

    It is a share of the time that the whole model needs for the same texts as it is used without layerwise. Both
    include tokenization.
    """
    own, clock = baseline_recipe(network).template, clock_of(network.device)
    room = room_for_text(network.tokenizer, template, max_length)
    found: dict[int | None, tuple[RelativeTime, ...]] = {}
    for tokens, batch in timed_texts(network.tokenizer, texts, room).items():
        measures = [timed_pass(network, batch, each, max_length, clock) for each in dict.fromkeys((template, own))]
        times = relative_times(measures, (own, WHOLE))
        found[tokens] = tuple(times[template, layer] for layer in range(network.depth + 1))
    return found


def relative_media_times(
    network: Network, payloads: Sequence[Payload], max_length: int
) -> dict[int | None, tuple[RelativeTime, ...]]:
    """The same for some clips or images, whose length is not counted in tokens."""
    measure = timed_pass(network, payloads[:TIMED_MEDIA], "", max_length, clock_of(network.device))
    times = relative_times([measure], ("", WHOLE))
    return {None: tuple(times["", layer] for layer in range(network.depth + 1))}


def timed_pass(
    network: Network, payloads: Sequence[Payload], template: str, max_length: int, clock: Callable[[], float]
) -> Measure[tuple[str, int]]:
    """A forward pass to measure: the seconds until each layer and of the whole pass, by template and layer."""
    examples = [Example(str(i), payload) for i, payload in enumerate(payloads)]
    layers = range(network.depth + 2)  # one more than there are: the pass is not stopped after the last block

    def measure() -> dict[tuple[str, int], float]:
        seconds: dict[tuple[str, int], float] = {}

        def on_layer(number: int, hidden: Tensor) -> None:
            seconds[template, number] = clock() - began

        began = clock()
        prepared = network_processor(network, template).prepare(examples, max_length)
        group = next(make_groups(prepared, TIMED_TEXTS * max_length))  # all of them
        inputs = make_batch(network, group).inputs
        if isinstance(network, StreamedNetwork):  # it ends with the last block
            network.read_layers(inputs, range(network.depth + 1), on_layer)
        else:
            with torch.inference_mode(), tapped(network.structure, layers, on_layer):
                network.forward(inputs)
        return seconds | {(template, WHOLE): clock() - began}

    return measure

"""HiddenStates: a pass asks for nothing else, so that hidden states may come from anywhere."""

import torch
from families import DEPTH, make_model, make_tokenizer

from layerwise.inputs.source import Example
from layerwise.models.opening import open_network
from layerwise.passes.batches import network_processor
from layerwise.passes.tapped_pass import run_pass

EXAMPLES = [Example(str(i), f"w{i} w{i + 1} w3") for i in range(7)]


class Stored:
    """Hidden states that were kept from an earlier pass, by the inputs of their batch."""

    def __init__(self, network):
        self.network, self.kept, self.asked = network, {}, []
        self.device, self.preprocessor = network.device, network.preprocessor

    def keep(self, inputs, layers):
        self.kept[self.key(inputs)] = found = {}
        self.network.read_layers(inputs, layers, lambda number, hidden: found.update({number: hidden.clone()}))

    def read_layers(self, inputs, layers, on_layer, on_point=None):
        self.asked.append(sorted(layers))
        for number in sorted(layers):
            on_layer(number, self.kept[self.key(inputs)][number])

    def normed(self, hidden):
        return self.network.normed(hidden)

    def output(self, hidden):
        return self.network.output(hidden)

    @staticmethod
    def key(inputs):
        return tuple(map(tuple, inputs["input_ids"].tolist()))


class Sums:
    """Adds up what it is given, layer by layer."""

    def __init__(self, source):
        self.source, self.found, self.pending = source, {}, {}

    def on_layer(self, number, hidden, batch, point=""):
        self.pending[number] = (hidden.double().sum(), self.source.normed(hidden).double().sum())

    def commit(self, batch):
        for number, pair in self.pending.items():
            self.found.setdefault(number, []).append(torch.stack(pair))

    def discard(self):
        self.pending = {}


def test_stored_hidden_states_give_what_the_tapped_model_gives():
    network = open_network((make_model("llama"), make_tokenizer()))
    layers = range(DEPTH + 1)
    prepared = network_processor(network).prepare(EXAMPLES, 16)
    stored = Stored(network)

    class Keeping(Stored):
        def read_layers(self, inputs, layers, on_layer, on_point=None):
            stored.keep(inputs, layers)

    run_pass(Keeping(network), prepared, layers, 12, Sums(network))
    found = []
    for source in (network, stored):
        sums = Sums(source)
        run_pass(source, prepared, layers, 12, sums)
        found.append({number: torch.stack(parts) for number, parts in sums.found.items()})
    assert stored.asked == [list(layers)] * len(stored.kept) and len(stored.kept) > 1
    assert list(found[0]) == list(layers) and all(torch.equal(found[0][n], found[1][n]) for n in layers)

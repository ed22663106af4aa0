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

    def keep(self, batch):
        for number, pair in self.pending.items():
            self.found.setdefault(number, []).append(torch.stack(pair))
        self.pending = {}

    def finish(self, batch):
        pass

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


class Tight(Sums):
    """Has no room for more than two examples, which it notices half-way through the layers."""

    def __init__(self, source):
        super().__init__(source)
        self.finished, self.refused = [], 0

    def on_layer(self, number, hidden, batch, point=""):
        if number == 1 and len(batch.examples) > 2:
            self.refused += 1
            raise torch.OutOfMemoryError("out of memory")
        super().on_layer(number, hidden, batch, point)

    def finish(self, batch):
        self.finished += [example.id for example in batch.examples]


def test_a_batch_that_does_not_fit_is_halved_and_each_example_is_read_once():
    network = open_network((make_model("llama"), make_tokenizer()))
    prepared = network_processor(network).prepare(EXAMPLES, 16)
    consumer = Tight(network)
    run_pass(network, prepared, range(DEPTH + 1), 1000, consumer)
    assert consumer.refused and sorted(consumer.finished) == sorted(example.id for example in EXAMPLES)
    whole = Sums(network)
    run_pass(network, prepared, range(DEPTH + 1), 1000, whole)
    for number, parts in consumer.found.items():
        torch.testing.assert_close(torch.stack(parts).sum(dim=0), torch.stack(whole.found[number]).sum(dim=0))

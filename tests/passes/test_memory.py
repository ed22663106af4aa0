"""Memory: a scan holds one layer at a time, where output_hidden_states would hold all of them."""

import torch

from benchmarks.memory import LiveBytes
from benchmarks.overhead import batch_of
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.tapped_pass import run_batch
from layerwise.verbs.scan.plan import ScanPlan, choose_metrics
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.worker import PromptValues, ReadingConsumer

EXAMPLES, LENGTH = 16, 256


def test_a_scan_adds_one_layer_its_gram_matrices_and_the_state(real_model):
    network = load_network(ModelSpec(real_model("smollm2-135m")))
    batch = batch_of(network, EXAMPLES, LENGTH)
    plan = ScanPlan(choose_metrics("fast"), tuple(range(network.depth + 1)), network.depth, has_norm=True)
    state = ScanState({})
    consumer = ReadingConsumer(network, plan, state, PromptValues(), lambda prompts, tokens: None)

    with LiveBytes() as bare, torch.no_grad():
        network.forward(batch.inputs)
    with LiveBytes() as scanned:
        run_batch(network, batch, plan.layers, consumer)
    with LiveBytes() as retained, torch.no_grad():
        network.module(input_ids=batch.inputs["input_ids"], output_hidden_states=True, use_cache=False)

    layer = 4 * EXAMPLES * LENGTH * network.width
    gram = 4 * EXAMPLES * LENGTH * LENGTH
    allowed = 1.1 * (layer + gram + plan.state_bytes(network.width, EXAMPLES))
    assert bare.peak > 2 * layer, "the counter must see the forward pass"
    assert scanned.peak - bare.peak <= allowed
    assert retained.peak - bare.peak > 20 * layer

"""The cost of a scan by counting, which does not depend on the machine: operations, products and bytes beside those of
the forward pass."""

from collections import Counter

import pytest
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.memory import new_tensors
from benchmarks.overhead import Nothing, batch_of
from layerwise.metrics import readings
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.tapped_pass import run_batch
from layerwise.verbs.scan.plan import ScanPlan, choose_metrics
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.worker import PromptValues, ReadingConsumer

PROMPTS, LENGTH = 4, 24


class Counted(TorchDispatchMode):
    """Counts torch's calls, and the numbers in the tensors that they make."""

    def __init__(self):
        super().__init__()
        self.calls, self.sizes = Counter(), []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls[function.overloadpacket.__name__] += 1
        self.sizes += [tensor.numel() for tensor in new_tensors(result, args, kwargs)]
        return result


@pytest.fixture
def scanned(tiny_llama):
    """A function that prepares one batch, and returns what runs it with or without readings of every layer."""
    network = load_network(ModelSpec(tiny_llama))
    layers = tuple(range(network.depth + 1))

    def run(with_readings, prompts=PROMPTS, rows=("raw",)):
        batch = batch_of(network, prompts, LENGTH)
        if not with_readings:
            return lambda: run_batch(network, batch, layers, Nothing())
        plan = ScanPlan(choose_metrics("fast"), layers, network.depth, has_norm=False, rows=rows)
        consumer = ReadingConsumer(network, plan, ScanState({}), PromptValues(), lambda prompts, tokens: None)
        return lambda: run_batch(network, batch, layers, consumer)

    run.network, run.layers = network, len(layers)
    return run


def count(mode, action):
    with mode as counted:
        action()
    return counted


def test_a_scan_multiplies_each_prompt_once_with_itself(scanned):
    bare, scan = (count(FlopCounterMode(display=False), scanned(w)).get_total_flops() for w in (False, True))
    width = scanned.network.width
    gram = 2 * LENGTH * min(LENGTH, width) * max(LENGTH, width)
    assert scan - bare == scanned.layers * PROMPTS * gram


@pytest.mark.parametrize(("rows", "copies"), [("raw", 2), ("centered_unit", 4)])
def test_a_scan_writes_few_copies_of_the_hidden_states(scanned, rows, copies):
    """`raw`: steps between tokens, and their products. `centered_unit`: also centered rows, and those of length 1."""
    large = PROMPTS * (LENGTH - 2) * scanned.network.width
    bare, scan = (
        sum(size >= large for size in count(Counted(), scanned(w, rows=(rows,))).sizes) for w in (False, True)
    )
    assert scan - bare == scanned.layers * copies


def test_calls_do_not_grow_with_the_number_of_prompts_of_a_chunk(scanned):
    few, many = (sum(count(Counted(), scanned(True, n)).calls.values()) for n in (2, 8))
    bare = sum(count(Counted(), scanned(False)).calls.values())
    assert many == few
    assert (few - bare) / scanned.layers < 400


def test_eigenvalues_are_computed_once_per_chunk(scanned, monkeypatch):
    assert count(Counted(), scanned(True)).calls["_linalg_eigh"] == scanned.layers
    monkeypatch.setitem(readings.CHUNK_ELEMENTS, "cpu", LENGTH * scanned.network.width)
    assert count(Counted(), scanned(True)).calls["_linalg_eigh"] == scanned.layers * PROMPTS

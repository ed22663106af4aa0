"""How long a scan takes on the device at hand: predicted from the time of a few of its own examples."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from layerwise.core.progress import in_words
from layerwise.engines.shards import torch_threads
from layerwise.inputs.source import Example, Source
from layerwise.models.network import Network
from layerwise.models.streamed import StreamedNetwork
from layerwise.passes.batches import network_processor
from layerwise.runs.identity import DataRef
from layerwise.verbs.scan.forecast import Forecast
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.prepare import typical_examples
from layerwise.verbs.scan.rows import layer_scores
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.worker import scan_shard

TIMED_BATCHES = 3  # full batches; the first of a process is slower than the rest, so one more is run before
MOST_EXAMPLES = 2048  # that are looked at to fill them
MOST_MERGED = 4096  # prompts: scoring hardly takes longer for more


@dataclass(frozen=True)
class Seconds:
    """Predicted seconds on one process with the model loaded.

    Args:
        forward: forward passes and readings of all examples.
        scoring: from the merged state to the table.
        timed: how many examples were timed.
    """

    forward: float
    scoring: float
    timed: int

    @property
    def total(self) -> float:
        return self.forward + self.scoring

    def line(self) -> str:
        return f"time             about {in_words(self.total)}, without loading (from {self.timed:,} timed examples)"


def predict_seconds(network: Network, plan: ScanPlan, source: Source, forecast: Forecast) -> Seconds:
    """Times whole batches of typical examples, and the scoring of one layer."""
    examples = examples_to_time(network, plan, source)
    with torch_threads(plan.threads):
        warm_up = examples[: max(1, len(examples) // (TIMED_BATCHES + 1))]
        if isinstance(network, StreamedNetwork) and max(plan.layers) > 1:
            forward, state = seconds_of_streaming(network, plan, examples, warm_up, forecast)
            timed_layers = replace(plan, layers=(1, 2))
            scoring = seconds_of_scoring(network, timed_layers, state, min(forecast.prompts, MOST_MERGED))
            scoring *= len(plan.layers) / len(timed_layers.layers)
            return Seconds(forward, scoring, len(examples))
        scan_shard(network, plan, {}, warm_up, lambda prompts, tokens: None)
        timed = examples[len(warm_up) :] or warm_up
        began = time.perf_counter()
        state, _ = scan_shard(network, plan, {}, timed, lambda prompts, tokens: None)
        forward = (time.perf_counter() - began) / state.facts.tokens
        scoring = seconds_of_scoring(network, plan, state, min(forecast.prompts, MOST_MERGED))
    tokens = forecast.tokens / (1 + plan.views)
    return Seconds(forward * tokens, scoring, len(timed))


def seconds_of_streaming(
    network: Network, plan: ScanPlan, examples: Sequence[Example], few: Sequence[Example], forecast: Forecast
) -> tuple[float, ScanState]:
    """Predicted seconds of all passes, and a state of the layers that were timed.

    What one and two blocks take, with few examples and with all of them, gives the time to read a block and the time
    of a token in a block.
    """

    def timed(layers: tuple[int, ...], some: Sequence[Example]) -> tuple[float, ScanState]:
        began = time.perf_counter()
        state, _ = scan_shard(network, replace(plan, layers=layers), {}, some, lambda prompts, tokens: None)
        return time.perf_counter() - began, state

    timed((1,), few)
    start, of_few = timed((1,), few)
    first_time, _ = timed((1, 2), few)
    again, _ = timed((1, 2), few)
    start_of_all, of_all = timed((1,), examples)
    all_of_two, state = timed((1, 2), examples)
    further = of_all.facts.tokens - of_few.facts.tokens
    per_token = max(0.0, all_of_two - start_of_all - (again - start)) / max(1, further)
    reading = max(0.0, first_time - start - per_token * of_few.facts.tokens)  # from disk, unless it was read before
    assert forecast.streaming is not None
    depth, tokens = max(plan.layers), forecast.tokens / (1 + plan.views)
    return forecast.streaming.reads * (start + depth * reading) + tokens * depth * per_token, state


def examples_to_time(network: Network, plan: ScanPlan, source: Source) -> list[Example]:
    """So many examples that they fill the batches to time, views included."""
    processor, wanted = network_processor(network), (TIMED_BATCHES + 1) * plan.batch_tokens
    found: list[Example] = []
    size = 0.0
    for example in typical_examples(source, MOST_EXAMPLES):
        found.append(example)
        size += min(processor.size(example.payload), plan.max_length) * (1 + plan.views)
        if size >= wanted:
            break
    return found


def seconds_of_scoring(network: Network, plan: ScanPlan, state: ScanState, prompts: int) -> float:
    """The time to score all layers of a state of that many prompts, from one layer of a state merged with itself."""
    while state.facts.prompts < prompts:
        state.merge(ScanState.parse(state.dump()))
    model, data = network.identity(), DataRef("", "", {})
    layer = plan.layers[len(plan.layers) // 2]
    began = time.perf_counter()
    layer_scores(model, plan, state, data, layer)
    return (time.perf_counter() - began) * len(plan.layers)

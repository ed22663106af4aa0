"""The worker: runs one shard through the model and returns its state. The same on a laptop and on a cluster node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from layerwise.core.checks import PoolingChoice
from layerwise.core.recipe import Readout
from layerwise.engines.shards import ProgressCallback, torch_threads
from layerwise.inputs.perturbations.changes import ViewPlan
from layerwise.inputs.source import Example
from layerwise.metrics.accumulators.class_scatter import ClassScatter
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.ops.pooling import pool
from layerwise.metrics.readings import LayerBatch, Reading
from layerwise.models.network import Network
from layerwise.passes.batches import Batch, network_processor
from layerwise.passes.tapped_pass import run_pass
from layerwise.passes.vectors import not_finite
from layerwise.runs.keys import CONTENT_DIGESTS
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.state import Facts, ScanState
from layerwise.verbs.scan.sum_precision import make_accumulator


@dataclass
class PromptValues:
    """Per-prompt values: for each key and column, in the order of `ids` and `digests`."""

    ids: list[str] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    values: dict[str, list[Tensor]] = field(default_factory=dict)  # key -> one (B, columns) tensor per batch


@dataclass
class ReadingConsumer:
    """Reduces each layer as it arrives; what was read of a batch that fails can be discarded."""

    network: Network
    plan: ScanPlan
    state: ScanState
    prompts: PromptValues
    on_batch: ProgressCallback
    # By layer and point: the readings of each readout, by key.
    readings: dict[tuple[int, str], dict[Readout, dict[str, Reading]]] = field(init=False)
    pending: dict[str, tuple[Reading, tuple[Tensor, ...], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readings = {}
        for m in (m for layer in self.plan.layers for m in self.plan.measurements(layer)):
            readouts = self.readings.setdefault((m.readout.layer, m.point), {})
            readouts.setdefault(m.readout, {}).update({m.key(reading): reading for reading in m.readings})

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        states = {"raw": hidden}
        for readout, readings in self.readings[number, point].items():
            if readout.norm not in states:
                states[readout.norm] = self.network.normed(hidden)
            layer_batch = self.layer_batch(states[readout.norm], batch, readout, point)
            for key, reading in readings.items():
                self.pending[key] = (reading, reading.read(layer_batch), hidden.shape[-1])

    def layer_batch(self, hidden: Tensor, batch: Batch, readout: Readout, point: str) -> LayerBatch:
        """The input of readings for a layer; raises if it is not finite, with layer, dtype and example."""
        mask = batch.counted(hidden, readout.tokens)  # (B, V, T)
        pooled = pool(hidden, mask, cast(PoolingChoice, readout.pooling))  # (B, V, D)
        bad = ~torch.isfinite(pooled).flatten(1).all(dim=1) & mask.any(dim=-1).all(dim=1)
        if bool(bad.any()):
            example = batch.examples[int(bad.nonzero()[0])]
            raise not_finite(readout.layer, hidden.dtype, example.id, point)
        return LayerBatch(batch.keys.to(hidden.device), hidden[:, 0], mask[:, 0], pooled)

    def keep(self, batch: Batch) -> None:
        for key, (reading, values, width) in self.pending.items():
            if key not in self.state.accumulators:
                self.state.accumulators[key] = make_accumulator(reading, width, self.plan.state)
            self.state.accumulators[key].update(*(part.cpu() for part in values))
            if reading.columns:
                self.prompts.values.setdefault(key, []).append(values[0].cpu())
        self.discard()

    def finish(self, batch: Batch) -> None:
        self.prompts.ids.extend(example.id for example in batch.examples)
        self.prompts.digests.extend(example.digest for example in batch.examples)
        tokens = sum(e.sizes[0] for e in batch.examples)
        digests = torch.tensor([e.digest for e in batch.examples], dtype=torch.int64)
        truncated, total = sum(e.truncated for e in batch.examples), sum(digests.tolist()) % 2**64
        self.state.facts.merge(Facts(len(batch.examples), tokens, truncated, total))
        self.state.accumulators.setdefault(CONTENT_DIGESTS, RowSample(1)).update(batch.keys, digests[:, None, None])
        self.on_batch(len(batch.examples), tokens)

    def discard(self) -> None:
        self.pending = {}


def scan_shard(
    network: Network, plan: ScanPlan, origin: Mapping[str, Any], examples: Sequence[Example], on_batch: ProgressCallback
) -> tuple[ScanState, PromptValues]:
    """The state of one shard, and its per-prompt values."""
    state, prompts = ScanState(origin), PromptValues()
    view_plan = ViewPlan(views=plan.views, strength=plan.view_strength, seed=plan.seed, stress=plan.stress)
    prepared = network_processor(network).prepare(examples, plan.max_length, view_plan)
    consumer = ReadingConsumer(network, plan, state, prompts, on_batch)
    with torch_threads(plan.threads):
        run_pass(network, prepared, plan.layers, plan.batch_tokens, consumer, inside=bool(plan.points))
        for accumulator in state.accumulators.values():
            if isinstance(accumulator, SecondMoment | ClassScatter):
                accumulator.fold_buffer()
    return state, prompts

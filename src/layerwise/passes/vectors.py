"""Pooled vectors of any layers, one row per example, from the same pass as scan."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from layerwise.core.checks import SHIPPED, PoolingChoice
from layerwise.core.errors import ModelError, NotFiniteError
from layerwise.core.recipe import Readout, Recipe
from layerwise.inputs.source import Example, Payload
from layerwise.metrics.ops.pooling import pool
from layerwise.metrics.ops.precision import not_finite_advice
from layerwise.models.doctor import output_problem
from layerwise.models.network import Network
from layerwise.passes.batches import Batch, network_processor
from layerwise.passes.tapped_pass import place_name, run_pass

FIRST_BLOCK = 2**20  # bytes


class GrowingRows:
    """Rows (D,) that are added batch by batch; the block that holds them doubles when it is full.

    If they were kept as many small tensors, these would lie between the large ones that each batch frees, and break up
    the heap: the memory of a process would grow with every batch.
    """

    def __init__(self) -> None:
        self.count = 0
        self.block: Tensor | None = None

    def add(self, rows: Tensor) -> range:
        """Copies rows (B, D) to the CPU, and returns their places."""
        block = self.block
        if block is None:
            row_bytes = max(1, rows.shape[1] * rows.element_size())
            block = self.block = torch.empty(max(1, FIRST_BLOCK // row_bytes), rows.shape[1], dtype=rows.dtype)
        needed = self.count + len(rows)
        if needed > len(block):
            larger = torch.empty(max(needed, 2 * len(block)), block.shape[1], dtype=block.dtype)
            larger[: self.count] = block[: self.count]
            block = self.block = larger
        block[self.count : needed] = rows
        places = range(self.count, needed)
        self.count = needed
        return places

    def take(self, places: Iterable[int]) -> Tensor:
        """The rows at these places, in that order."""
        assert self.block is not None, "no rows were added"
        return self.block[torch.tensor([*places], dtype=torch.long)]


def part_rows(network: Network, recipe: Recipe, payloads: Sequence[Payload], max_length: int) -> list[Tensor]:
    """Pooled rows (N, D) of each part of the recipe before its map, from the same pass as scan."""
    examples = [Example(str(i), payload) for i, payload in enumerate(payloads)]
    readouts = [readout for readout, _ in recipe.parts]
    vectors = pooled_vectors(network, examples, readouts, max_length=max_length, template=recipe.template)
    return [vectors[readout] for readout in readouts]


@dataclass
class PoolingConsumer:
    """Collects the pooled rows of each readout, and the places of each example among them, by its key."""

    network: Network
    readouts: Sequence[Readout]
    on_batch: Callable[[int], None]
    left_out: int = 0  # how many tokens at the start of each example the model as shipped does not pool
    rows: dict[Readout, GrowingRows] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    pending: dict[Readout, Tensor] = field(default_factory=dict)

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        states_by_norm = {"raw": hidden}
        for readout in self.readouts:
            if readout.layer == number and readout.norm == SHIPPED:
                self.pending[readout] = self.shipped_rows(hidden, batch)
            elif readout.layer == number:
                if readout.norm not in states_by_norm:
                    states_by_norm[readout.norm] = self.network.normed(hidden)
                states, mask = batch.counted_states(states_by_norm[readout.norm], readout.tokens)
                self.pending[readout] = pool(states, mask, cast(PoolingChoice, readout.pooling))[:, 0]  # (B, D)

    def shipped_rows(self, hidden: Tensor, batch: Batch) -> Tensor:
        """The model's own vectors (B, E), computed from the output of its last block."""
        states = self.network.output(hidden)
        assert self.network.head is not None, "only a model that ships a head has this readout"
        rows = self.network.head(states[:, 0], batch.inputs, self.left_out)  # there are no views here
        return rows.to(torch.promote_types(rows.dtype, torch.float32))

    def keep(self, batch: Batch) -> None:
        for readout, rows in self.pending.items():
            places = self.rows.setdefault(readout, GrowingRows()).add(rows)
            self.places.update(zip((e.key for e in batch.examples), places, strict=True))
        self.discard()

    def finish(self, batch: Batch) -> None:
        self.on_batch(len(batch.examples))

    def discard(self) -> None:
        self.pending = {}


def pooled_vectors(
    network: Network,
    examples: Sequence[Example],
    readouts: Sequence[Readout],
    *,
    max_length: int,
    template: str = "",
    batch_tokens: int = 4096,
    on_batch: Callable[[int], None] = lambda done: None,
) -> dict[Readout, Tensor]:
    """One matrix (N, D) per readout, from one pass, with rows in the order of the examples.

    The template is put around each example.

    An example in which no token counts, such as a single first token, has a vector of zeros, as in an exported model.
    """
    encoded_by_model = [
        r for r in readouts if r.norm == SHIPPED and network.head is not None and network.head.shipped.own_encode_reason
    ]
    from_taps = [r for r in readouts if r not in encoded_by_model]
    left_out = 0
    if network.head is not None and any(readout.norm == SHIPPED for readout in readouts):
        network.head.require_template(template)
        if not encoded_by_model:
            left_out = network.head.left_out(network.preprocessor, [e.payload for e in examples], template)
    vectors: dict[Readout, Tensor] = {}
    if from_taps:
        require_known_output(network, from_taps)
        prepared = network_processor(network, template).prepare(examples, max_length)
        consumer = PoolingConsumer(network, from_taps, on_batch, left_out)
        run_pass(network, prepared, {readout.layer for readout in from_taps}, batch_tokens, consumer)
        places = [consumer.places[example.key] for example in examples]
        vectors = {readout: consumer.rows[readout].take(places) for readout in from_taps}
    for readout in encoded_by_model:  # models whose modules need more than our pass provides encode examples themselves
        assert network.head is not None
        vectors[readout] = network.head.encode([e.payload for e in examples], max_length, template)
    return vectors


def require_known_output(network: Network, readouts: Sequence[Readout]) -> None:
    """Raises if these are vectors of the model as shipped and its output is not what follows its last block; warns if
    they are of its last layer. Checked once per model, on one short text."""
    last = [r for r in readouts if r.layer == network.depth and (r.norm != "raw" or not network.has_norm)]
    if not last or network.output_is_checked:
        return
    problem = output_problem(network)
    if problem and any(readout.norm == SHIPPED for readout in last):
        raise ModelError(f"the model as shipped cannot be read: {problem}. Layers can be chosen by number")
    network.output_is_checked = True
    if problem:
        warnings.warn(f"the last layer is not the model's output: {problem}", stacklevel=3)


def require_finite_vectors(vectors: Mapping[Readout, Tensor], examples: Sequence[Example], dtype: torch.dtype) -> None:
    """Raises if a vector contains NaN or infinity, with layer, dtype and example."""
    for readout, rows in vectors.items():
        if len(bad := not_finite_rows(rows)):
            raise not_finite(readout.layer, dtype, examples[int(bad[0])].id)


def not_finite_rows(rows: Tensor) -> Tensor:
    """The places of rows that contain NaN or infinity."""
    return (~torch.isfinite(rows).all(dim=1)).nonzero()[:, 0]


def not_finite(layer: int, dtype: torch.dtype, example_id: str, point: str = "") -> NotFiniteError:
    return NotFiniteError(
        f"{place_name(layer, point)} contains NaN or infinity in {dtype} for example {example_id}; "
        f"{not_finite_advice(dtype)}"
    )

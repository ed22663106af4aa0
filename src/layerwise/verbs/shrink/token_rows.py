"""The vector of each entry of a vocabulary: what a layer of the model gives for that entry alone."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from layerwise.core.recipe import Readout
from layerwise.inputs.processor import make_prepared
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.passes.tapped_pass import run_pass
from layerwise.passes.vectors import PoolingConsumer, require_finite_vectors

BATCH_TOKENS = 4096
SAMPLE = "word"
Entry = tuple[int, ...]  # the token ids of an entry: one, or those of an added word


def token_rows(
    network: Network, entries: Sequence[Entry], readout: Readout, on_batch: Callable[[int], None] = lambda done: None
) -> Tensor:
    """One row per entry (V, D): the readout of a text that is this entry, with the tokens that every text gets."""
    before, after = added_tokens(network.tokenizer)
    examples = [Example(str(i), str(i)) for i in range(len(entries))]
    prepared = [
        make_prepared(example, ((*before, *entry, *after),), [len(before) + len(entry) + len(after)])
        for example, entry in zip(examples, entries, strict=True)
    ]
    consumer = PoolingConsumer(network, [readout], on_batch)
    run_pass(network, prepared, {readout.layer}, BATCH_TOKENS, consumer)
    found = {readout: consumer.rows[readout].take([consumer.places[example.key] for example in examples])}
    require_finite_vectors(found, examples, network.dtype)
    return found[readout].float()


def added_tokens(tokenizer: Any) -> tuple[Entry, Entry]:
    """The special tokens that the tokenizer puts before and after a text."""
    plain = list(tokenizer(SAMPLE, add_special_tokens=False)["input_ids"])
    whole = list(tokenizer(SAMPLE)["input_ids"])
    places = [i for i in range(len(whole) - len(plain) + 1) if whole[i : i + len(plain)] == plain]
    first = places[0] if plain and places else 0
    return tuple(whole[:first]), tuple(whole[first + len(plain) :])

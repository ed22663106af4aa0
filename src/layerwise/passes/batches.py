"""Batches: examples of like length together, as many as a budget of tokens allows, padded on the right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerwise.models.network import Network
from layerwise.passes.encode import Encoded


@dataclass(frozen=True)
class Batch:
    """B examples with V views each, as tensors (B, V, T): ids, which tokens are real, which are special."""

    examples: tuple[Encoded, ...]
    ids: Tensor
    real: Tensor
    special: Tensor

    @property
    def keys(self) -> Tensor:
        return torch.tensor([example.key for example in self.examples], dtype=torch.int64)


def cut_batches(examples: Sequence[Encoded], budget: int) -> Iterator[tuple[Encoded, ...]]:
    """Groups of examples, longest first, whose padded size stays within `budget` tokens (or one example).

    Longest first, so that a batch that does not fit into memory is met at the start and not at the end. Ties
    are broken by key: the batches do not depend on the order of the examples.
    """
    waiting = sorted(examples, key=lambda e: (-e.longest, e.key))
    while waiting:
        size = max(1, budget // (waiting[0].longest * len(waiting[0].views)))
        yield tuple(waiting[:size])
        waiting = waiting[size:]


def make_batch(network: Network, examples: Sequence[Encoded]) -> Batch:
    """The tensors of a group of examples, on the model's device."""
    views, longest = len(examples[0].views), max(e.longest for e in examples)
    ids = torch.full((len(examples), views, longest), network.tokenizer.pad_token_id)
    real = torch.zeros(ids.shape, dtype=torch.bool)
    for i, example in enumerate(examples):
        for v, tokens in enumerate(example.views):
            ids[i, v, : len(tokens)] = torch.tensor(tokens)
            real[i, v, : len(tokens)] = True
    special = torch.isin(ids, torch.tensor(sorted(network.special_ids), dtype=ids.dtype)) & real
    return Batch(tuple(examples), ids.to(network.device), real.to(network.device), special.to(network.device))

"""Batches of examples of similar size, within a budget of positions, made by the model's processor."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from layerwise.core.checks import TokenChoice
from layerwise.inputs.modalities import processor_for
from layerwise.inputs.processor import Masks, Prepared, Processor
from layerwise.metrics.ops.tokens import counted_tokens
from layerwise.passes.hidden_states import HiddenStates


def network_processor(network: HiddenStates, template: str = "") -> Processor[Any]:
    """The processor that makes this model's inputs, with the template around each text."""
    return processor_for(network.preprocessor, template)


@dataclass(frozen=True)
class Batch:
    """B examples with V views each: the model's inputs, (B * V, ...) each, on its device."""

    examples: tuple[Prepared[object], ...]
    inputs: Mapping[str, Tensor]
    processor: Processor[Any]
    _masks: dict[int, Masks] = field(default_factory=dict, repr=False, compare=False)

    @property
    def keys(self) -> Tensor:
        return torch.tensor([example.key for example in self.examples], dtype=torch.int64)

    @property
    def views(self) -> int:
        return len(self.examples[0].sizes)

    def masks(self, positions: int) -> Masks:
        """Masks of real and special positions (B, V, T), for hidden states with `positions` positions.

        The number may be known only now (image patches), and may change between layers (merged patches).
        """
        if positions not in self._masks:
            self._masks[positions] = self.processor.masks(self.examples, self.inputs, positions)
        return self._masks[positions]

    def counted(self, states: Tensor, tokens: TokenChoice) -> Tensor:
        """The mask (B, V, T) of the positions of hidden states (B, V, T, D) that count."""
        masks = self.masks(states.shape[-2])
        return counted_tokens(states, masks.real, masks.special, tokens, opening=masks.opening, padding=masks.padding)

    def counted_states(self, states: Tensor, tokens: TokenChoice) -> tuple[Tensor, Tensor]:
        """The states and that mask; an example in which no position counts gets one of zeros, so its vector is zero."""
        counted = self.counted(states, tokens)
        none = ~counted.any(dim=-1, keepdim=True)  # (B, V, 1)
        if not bool(none.any()):
            return states, counted
        first = torch.arange(counted.shape[-1], device=counted.device) == 0
        return states.masked_fill(none[..., None], 0.0), counted | (none & first)


def make_groups(examples: Sequence[Prepared[object]], budget: int) -> Iterator[tuple[Prepared[object], ...]]:
    """Groups of examples, longest first, whose padded size is at most `budget` positions (or a single example).

    Longest first, so that a batch that does not fit into memory fails at the start. Ties are broken by key, so that
    batches do not depend on the order of the examples. Examples with different batch keys are not mixed.
    """
    remaining = sorted(examples, key=lambda e: (-e.max_size, e.batch_key, e.key))
    while remaining:
        first = remaining[0]
        size = max(1, budget // (first.max_size * len(first.sizes)))
        group = tuple(takewhile(lambda e: e.batch_key == first.batch_key, remaining[:size]))  # noqa: B023
        yield group
        remaining = remaining[len(group) :]


def make_batch(network: HiddenStates, examples: Sequence[Prepared[object]]) -> Batch:
    """The tensors of a group of examples, on the model's device."""
    processor = network_processor(network)
    inputs = {name: tensor.to(network.device) for name, tensor in processor.collate(examples).items()}
    return Batch(tuple(examples), inputs, processor)

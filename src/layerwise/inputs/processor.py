"""Processors: what makes model inputs of payloads. One per modality, or one that a user brings along."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from layerwise.inputs.perturbations.changes import UNCHANGED, Changes
from layerwise.inputs.source import Example, Payload

View_co = TypeVar("View_co", covariant=True)
ViewT = TypeVar("ViewT")


@dataclass(frozen=True)
class Prepared(Generic[View_co]):
    """An example as its processor made it ready: its names, its views (the original first) and their sizes.

    Only the processor looks into `views`. They may be the inputs themselves, as with tokens, or what these are made of
    once their batch comes up: a shard of decoded pictures would not fit into memory. `sizes` are positions of the
    hidden states (tokens, patches, frames), by which batches are cut.
    """

    id: str
    key: int
    digest: int  # of id and content
    views: tuple[View_co, ...]
    sizes: tuple[int, ...]
    cut: bool = False  # the original was longer than the longest length

    @property
    def longest(self) -> int:
        return max(self.sizes)


def prepared(example: Example, views: tuple[ViewT, ...], sizes: Sequence[int], *, cut: bool = False) -> Prepared[ViewT]:
    """The example under its own names."""
    return Prepared(example.id, example.key, example.digest, views, tuple(sizes), cut)


class Masks(NamedTuple):
    """Which positions of B examples with V views are content, and which of them the processor added: (B, V, T)."""

    real: Tensor  # not padding
    special: Tensor  # class tokens, separators, registers


@runtime_checkable
class Processor(Protocol[ViewT]):
    """Makes model inputs of examples.

    A processor that a user passes in a pair (module, processor) also has `identity()`, a text that changes with
    everything that changes the inputs: it is part of the model's fingerprint.
    """

    @property
    def stresses(self) -> Collection[str]:
        """The kinds of stress that `prepare` can apply; empty where it can apply none."""

    def prepare(
        self, examples: Sequence[Example], max_length: int, changes: Changes = UNCHANGED
    ) -> list[Prepared[ViewT]]:
        """The examples made ready, each cut to at most `max_length` positions; raises for what it cannot take."""

    def collate(self, group: Sequence[Prepared[ViewT]]) -> Mapping[str, Tensor]:
        """The arguments of one forward pass by name, each (B * V, ...): all views of the first example come first."""

    def masks(self, group: Sequence[Prepared[ViewT]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        """The masks for hidden states of so many positions; `inputs` are what `collate` gave for this group."""

    def size(self, payload: Payload) -> float:
        """How many positions a payload takes if it is not cut; infinity where that cannot be told."""

"""Processors turn payloads into model inputs: one per modality, or one passed by the user."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from layerwise.inputs.perturbations.changes import NO_VIEWS, ViewPlan
from layerwise.inputs.source import Example, Payload

View_co = TypeVar("View_co", covariant=True)
ViewT = TypeVar("ViewT")


@dataclass(frozen=True)
class Prepared(Generic[View_co]):
    """An example prepared by its processor: its ids, its views (the original first) and their sizes.

    Only the processor uses `views`. They may be the inputs themselves, as for tokens, or something from which inputs
    are made when the batch is built: a shard of decoded images would not fit into memory. `sizes` are numbers of
    positions (tokens, patches, frames), used to form batches.
    """

    id: str
    key: int
    digest: int  # of id and content
    views: tuple[View_co, ...]
    sizes: tuple[int, ...]
    truncated: bool = False  # the original was longer than max_length
    batch_key: int = 0  # only examples with equal keys share a batch, for models whose numbers padding would change

    @property
    def max_size(self) -> int:
        return max(self.sizes)


def make_prepared(
    example: Example, views: tuple[ViewT, ...], sizes: Sequence[int], *, truncated: bool = False, batch_key: int = 0
) -> Prepared[ViewT]:
    """Builds a Prepared with the ids of the example."""
    return Prepared(example.id, example.key, example.digest, views, tuple(sizes), truncated, batch_key)


class Masks(NamedTuple):
    """Masks (B, V, T) of real positions, and of positions added by the processor."""

    real: Tensor  # not padding
    special: Tensor  # class tokens, separators, registers
    padding: Tensor | None = None  # padding that every input of the model has, whatever its batch; None if it has none
    opening: Tensor | None = None  # special tokens that the processor puts first; None if it puts none there


@runtime_checkable
class Processor(Protocol[ViewT]):
    """Turns examples into model inputs.

    A processor passed by the user in a pair (module, processor) also needs `identity()`, a string that changes
    whenever the inputs would change. It is part of the model's fingerprint.
    """

    @property
    def stress_kinds(self) -> Collection[str]:
        """The kinds of stress that `prepare` supports; may be empty."""

    def prepare(
        self, examples: Sequence[Example], max_length: int, changes: ViewPlan = NO_VIEWS
    ) -> list[Prepared[ViewT]]:
        """Prepares the examples, truncated to at most `max_length` positions; raises for unsupported payloads."""

    def collate(self, group: Sequence[Prepared[ViewT]]) -> Mapping[str, Tensor]:
        """The named arguments of one forward pass, each (B * V, ...), with all views of the first example first."""

    def masks(self, group: Sequence[Prepared[ViewT]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        """The masks for hidden states with `positions` positions; `inputs` is what `collate` returned for the group."""

    def size(self, payload: Payload) -> float:
        """The number of positions of an untruncated payload; infinity if unknown."""

"""Token ids as inputs: batches that were tokenized elsewhere, such as those of a training."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.inputs.perturbations.changes import NO_VIEWS, ViewPlan
from layerwise.inputs.processor import Masks, Prepared, make_prepared
from layerwise.inputs.source import Example, Payload, Source, SourceRow

IDS, MASK = "input_ids", "attention_mask"
TokenIds = npt.NDArray[np.int64]


def is_tokenized(data: object) -> bool:
    """True for a list of tokenized batches."""
    return isinstance(data, Sequence) and not isinstance(data, str) and bool(data) and has_ids(data[0])


def has_ids(batch: object) -> bool:
    return isinstance(batch, Mapping) and IDS in batch


def open_token_ids(batches: Iterable[Mapping[str, Any]]) -> Source:
    """A source of token ids: one example per row of each batch, without its padding."""
    rows = [ids for batch in batches for ids in rows_of(batch)]

    def pairs() -> Iterator[SourceRow]:
        return ((None, ids) for ids in rows)

    return Source("tokenized batches", pairs)


def rows_of(batch: Mapping[str, Any]) -> Iterator[TokenIds]:
    if not has_ids(batch):
        raise InputError(f"a tokenized batch needs {IDS}; it has {', '.join(batch) or 'nothing'}")
    ids = torch.as_tensor(batch[IDS]).cpu()
    mask = torch.as_tensor(batch[MASK]).cpu().bool() if MASK in batch else torch.ones(ids.shape, dtype=torch.bool)
    if ids.dim() != 2 or mask.shape != ids.shape:
        raise InputError(f"a tokenized batch needs {IDS} (B, T) and a mask of that shape, not {tuple(ids.shape)}")
    for row, real in zip(ids, mask, strict=True):
        if bool(real.any()):
            yield row[real].to(torch.int64).numpy()


@dataclass(frozen=True)
class TokenIdsProcessor:
    """Pads token ids on the right. It knows no special tokens, and makes no views: those are changed texts."""

    pad_id: int = 0

    @property
    def stress_kinds(self) -> Collection[str]:
        return ()

    def identity(self) -> str:
        return "token ids"  # padding is masked, so it is no part of the identity

    def prepare(
        self, examples: Sequence[Example], max_length: int, changes: ViewPlan = NO_VIEWS
    ) -> list[Prepared[TokenIds]]:
        if changes.views:
            raise InputError("metrics that need views change the words of a text; pass texts, not tokenized batches")
        prepared = []
        for example in examples:
            ids = require_ids(example.payload)
            view, cut = ids[:max_length], len(ids) > max_length
            prepared.append(make_prepared(example, (view,), [len(view)], truncated=cut))
        return prepared

    def collate(self, group: Sequence[Prepared[TokenIds]]) -> Mapping[str, Tensor]:
        rows = [torch.from_numpy(view) for example in group for view in example.views]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        lengths = torch.tensor([len(row) for row in rows])
        return {IDS: padded, MASK: (torch.arange(padded.shape[1]) < lengths[:, None]).long()}

    def masks(self, group: Sequence[Prepared[TokenIds]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        real = inputs[MASK].bool().view(len(group), -1, inputs[MASK].shape[-1])
        return Masks(real, torch.zeros_like(real))

    def size(self, payload: Payload) -> float:
        return len(payload) if isinstance(payload, np.ndarray) else math.inf


def require_ids(payload: Payload) -> TokenIds:
    if not isinstance(payload, np.ndarray):
        raise InputError(f"expected token ids, got a {type(payload).__name__}")
    return payload

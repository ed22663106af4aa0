"""From the tokens of a prompt to one row: mean, last, first or max over the tokens that count."""

import torch
from torch import Tensor

from layerwise.core.checks import POOLINGS, require_word
from layerwise.ops.precision import widen


def pool(hidden: Tensor, mask: Tensor, pooling: str = "mean") -> Tensor:
    """One row a prompt, from the tokens that count; nan where none does.

    hidden (..., T, D), mask (..., T) -> (..., D) in at least float32.
    """
    require_word("pooling", pooling, POOLINGS)
    hidden, mask = widen(hidden), mask.bool()
    some = mask.any(dim=-1, keepdim=True)  # (..., 1)
    if pooling == "mean":
        row = torch.where(mask[..., None], hidden, 0.0).sum(dim=-2) / mask.sum(dim=-1, keepdim=True)
    elif pooling == "max":
        row = torch.where(mask[..., None], hidden, -torch.inf).amax(dim=-2)
    else:
        at = mask.long().argmax(dim=-1) if pooling == "first" else last_true(mask)  # (...)
        row = torch.take_along_dim(hidden, at[..., None, None], dim=-2).squeeze(-2)
    return torch.where(some, row, torch.nan)


def last_true(mask: Tensor) -> Tensor:
    """Index of the last True on the last axis.  (..., T) -> (...)"""
    places = torch.arange(mask.shape[-1], device=mask.device)
    return (places * mask).argmax(dim=-1)

"""Pooling: the tokens of a prompt become one row, by mean, last, first or max."""

import torch
from torch import Tensor

from layerwise.core.checks import POOLINGS, PoolingChoice, require_choice
from layerwise.metrics.ops.precision import at_least_float32, zero_masked_rows


def pool(hidden: Tensor, mask: Tensor, pooling: PoolingChoice = "mean") -> Tensor:
    """One vector per prompt, from the tokens that count.

    Args:
        hidden: hidden states, (..., T, D).
        mask: which tokens count, (..., T); padding is 0.
        pooling: mean, last, first or max over the tokens that count.

    Returns:
        (..., D) in float32 or wider; nan where no token counts.

    Example:
        >>> import torch
        >>> layerwise.functional.pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]])).item()
        2.0
    """
    require_choice("pooling", pooling, POOLINGS)
    hidden, mask = at_least_float32(hidden), mask.bool()
    any_counted = mask.any(dim=-1, keepdim=True)  # (..., 1)
    if pooling == "mean":
        row = zero_masked_rows(hidden, mask).sum(dim=-2) / mask.sum(dim=-1, keepdim=True)
    elif pooling == "max":
        row = torch.where(mask[..., None], hidden, -torch.inf).amax(dim=-2)
    else:
        index = mask.long().argmax(dim=-1) if pooling == "first" else last_true(mask)  # (...)
        row = torch.take_along_dim(hidden, index[..., None, None], dim=-2).squeeze(-2)
    return torch.where(any_counted, row, torch.nan)


def last_true(mask: Tensor) -> Tensor:
    """Index of the last True on the last axis.  (..., T) -> (...)"""
    positions = torch.arange(mask.shape[-1], device=mask.device)
    return (positions * mask).argmax(dim=-1)

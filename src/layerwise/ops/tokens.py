"""Which tokens count in a reading: all real ones, or without the first, the special ones, or attention sinks."""

import torch
from torch import Tensor

from layerwise.errors import InputError

TOKEN_CHOICES = ("all", "no_first", "no_special", "no_sinks")

# A token is a sink where its norm is more than this many times the median norm of its prompt.
SINK_RATIO = 10.0


def counted_tokens(hidden: Tensor, real: Tensor, special: Tensor, choice: str) -> Tensor:
    """The mask of tokens that count.

    hidden (..., T, D), real (..., T) what is not padding, special (..., T) what the tokenizer added -> (..., T).
    """
    if choice == "all":
        return real
    if choice == "no_first":
        return real & (real.long().cumsum(dim=-1) > 1)
    if choice == "no_special":
        return real & ~special
    if choice == "no_sinks":
        norms = hidden.norm(dim=-1).float().masked_fill(~real, torch.nan)
        sink: Tensor = norms > SINK_RATIO * norms.nanmedian(dim=-1, keepdim=True).values
        return real & ~sink
    raise InputError(f"tokens={choice!r} is not one of {', '.join(TOKEN_CHOICES)}")

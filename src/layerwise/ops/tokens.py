"""Which tokens are counted: all except padding, optionally without the first, special tokens or attention sinks."""

import torch
from torch import Tensor

from layerwise.core.checks import TOKEN_CHOICES, require_choice

# A token is an attention sink if its norm exceeds this multiple of the median norm in its prompt.
SINK_RATIO = 10.0


def counted_tokens(hidden: Tensor, real: Tensor, special: Tensor, tokens: str) -> Tensor:
    """The mask of tokens that count.

    hidden (..., T, D), real (..., T) tokens that are not padding, special (..., T) tokens added by the tokenizer ->
    (..., T).
    """
    require_choice("tokens", tokens, TOKEN_CHOICES)
    if tokens == "all":
        return real
    if tokens == "no_first":
        return real & (real.long().cumsum(dim=-1) > 1)
    if tokens == "no_special":
        return real & ~special
    norms = hidden.norm(dim=-1).float().masked_fill(~real, torch.nan)
    sink: Tensor = norms > SINK_RATIO * norms.nanmedian(dim=-1, keepdim=True).values
    return real & ~sink

"""Which tokens are counted: all except padding, optionally without the first, special tokens or attention sinks.

Models that take inputs of one length, such as 30 seconds of audio, can also be read with that padding.
"""

import torch
from torch import Tensor

from layerwise.core.checks import TOKEN_CHOICES, require_choice
from layerwise.core.errors import InputError

# A token is an attention sink if its norm exceeds this multiple of the median norm in its prompt.
SINK_RATIO = 10.0


def counted_tokens(
    hidden: Tensor,
    real: Tensor,
    special: Tensor,
    tokens: str,
    *,
    opening: Tensor | None = None,
    padding: Tensor | None = None,
) -> Tensor:
    """The mask of tokens that count.

    hidden (..., T, D), real (..., T) tokens that are not padding, special (..., T) tokens that the tokenizer adds,
    opening (..., T) those of them that it puts first, padding (..., T) that every input of the model has -> (..., T).
    """
    require_choice("tokens", tokens, TOKEN_CHOICES)
    if tokens == "with_padding":
        if padding is None:
            raise InputError(
                "tokens with_padding is for models that pad every input to one length, such as Whisper; this model "
                "does not"
            )
        return real | padding
    if tokens == "all":
        return real
    if tokens == "no_first":
        after_first = real & (real.long().cumsum(dim=-1) > 1)
        return after_first if opening is None else after_first & ~opening
    if tokens == "no_special":
        return real & ~special
    norms = hidden.norm(dim=-1).float().masked_fill(~real, torch.nan)
    sink: Tensor = norms > SINK_RATIO * norms.nanquantile(0.5, dim=-1, keepdim=True)  # nanmedian takes the lower middle
    return real & ~sink

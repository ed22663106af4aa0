"""Mean norm: the mean length of a prompt's token vectors."""

import torch
from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.ops.precision import at_least_float32, require_finite
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_score


def mean_norm(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean Euclidean norm of each prompt's tokens.

    Args:
        tokens: hidden states, (B, T, D).
        mask: which tokens count, (B, T); padding is 0.

    Returns:
        One number per prompt, (B,); nan where no token counts.

    Example:
        >>> import torch
        >>> layerwise.functional.mean_norm(torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]), torch.tensor([[1, 0]])).item()
        5.0
    """
    lengths = torch.where(mask.bool(), at_least_float32(tokens).norm(dim=-1), 0.0)  # (B, T)
    require_finite(lengths, "the tokens")
    return lengths.sum(dim=-1) / mask.sum(dim=-1)


METRIC = Metric(
    name="mean_norm",
    perspective="scale",
    larger_means="longer token vectors",
    reading=mean_over_prompts("mean_norm", mean_norm, shared=True),
    score=mean_score(),
    cite="Xiao et al. 2024 (attention sinks); Sun et al. 2024 (massive activations)",
)

"""Curvature: how sharply the path of token vectors turns from step to step."""

import torch
from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.ops.geometry import turning_angles
from layerwise.metrics.ops.precision import at_least_float32, require_finite, zero_masked_rows
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_score


def curvature(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean angle between successive steps of each prompt's token path, in radians.

    0 is a straight line, pi a full reversal. An angle counts where three adjacent tokens count and both steps move.

    Args:
        tokens: hidden states, (B, T, D).
        mask: which tokens count, (B, T); padding is 0.

    Returns:
        One number per prompt, (B,); nan where no angle counts.

    Example:
        >>> import torch
        >>> square = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])
        >>> round(layerwise.functional.curvature(square, torch.ones(1, 4)).item(), 4)
        1.5708
    """
    tokens, mask = zero_masked_rows(at_least_float32(tokens), mask.bool()), mask.bool()
    steps = tokens[:, 1:] - tokens[:, :-1]  # (B, T-1, D)
    length = steps.norm(dim=-1)  # (B, T-1)
    require_finite(length, "the steps between tokens")
    turns = turning_angles(steps, length)  # (B, T-2)
    is_nonzero = length > 0
    is_valid = mask[:, 2:] & mask[:, 1:-1] & mask[:, :-2] & is_nonzero[:, 1:] & is_nonzero[:, :-1]
    mean: Tensor = torch.where(is_valid, turns, 0.0).sum(dim=-1) / is_valid.sum(dim=-1)
    return mean


METRIC = Metric(
    name="curvature",
    perspective="geometry",
    larger_means="sharper turns",
    unit="radians",
    reading=mean_over_prompts("curvature", curvature, shared=True),
    score=mean_score(),
    cite="Hosseini & Fedorenko 2023; Skean et al. 2025, sec. 3.3",
)

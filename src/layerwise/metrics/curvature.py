"""Curvature: how sharply the path of a prompt's tokens turns from step to step."""

import torch
from torch import Tensor

from layerwise.metrics.base import Metric
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_of
from layerwise.ops.geometry import angle
from layerwise.ops.precision import require_finite, widen


def curvature(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean turning angle of each token path, in radians: 0 is a straight line, pi a full reversal.

    tokens (B, T, D), mask (B, T) -> (B,). A turn counts where three adjacent tokens count and both steps
    move; nan where no turn does.
    """
    tokens, mask = widen(tokens), mask.bool()
    require_finite(tokens, "the tokens", mask)
    tokens = torch.where(mask[..., None], tokens, 0.0)
    steps = tokens[:, 1:] - tokens[:, :-1]                                     # (B, T-1, D)
    moved = (steps != 0).any(dim=-1)                                           # (B, T-1)
    real = mask[:, 2:] & mask[:, 1:-1] & mask[:, :-2] & moved[:, 1:] & moved[:, :-1]
    turns = angle(steps[:, 1:], steps[:, :-1])                                 # (B, T-2)
    return torch.where(real, turns, 0.0).sum(dim=-1) / real.sum(dim=-1)


METRIC = Metric(
    name="curvature",
    perspective="geometry",
    larger_means="sharper turns",
    unit="radians",
    reading=mean_over_prompts("curvature", curvature),
    score=mean_of(),
    cite="Hosseini & Fedorenko 2023; Skean et al. 2025, sec. 3.3",
)

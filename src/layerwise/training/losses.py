"""Losses that keep a layer from collapsing: matrix entropy, and variance with covariance. Differentiable."""

from typing import Literal

import torch
from torch import Tensor

from layerwise.metrics.ops.pooling import pool
from layerwise.metrics.ops.precision import at_least_float32
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.ops.spectrum import matrix_entropy

Over = Literal["tokens", "texts"]
VARIANCE_FLOOR = 1e-4  # under the root, so that its gradient is finite where the variance is zero


def entropy_loss(
    hidden: Tensor, mask: Tensor, *, over: Over = "tokens", alpha: float = 2.0, rows: RowTreatment = "raw"
) -> Tensor:
    """Minus the matrix-based entropy of a layer, in nats: training on it spreads the vectors over more directions.

    Cost per layer and step for B texts of T tokens and width D: order 2 needs B products of T x D matrices, and keeps
    B T x T matrices until the backward pass. Other orders also need their eigenvalues, which takes about T cubed.

    Args:
        hidden: hidden states, (B, T, D).
        mask: which tokens count, (B, T); padding is 0.
        over: tokens (the mean over texts of the entropy of each text's tokens, as the metric `prompt_entropy`) or
            texts (the entropy of the mean vectors of the texts in the batch, as `dataset_entropy`).
        alpha: order of the entropy. 2 needs no eigenvalues; 1 is what the metrics use.
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.

    Returns:
        One number; 0 if no text of the batch has two tokens.

    Example:
        >>> import torch
        >>> hidden = torch.eye(4).expand(3, 4, 4)
        >>> round(layerwise.training.entropy_loss(hidden, torch.ones(3, 4)).item(), 4)
        -1.3863
    """
    counted = mask.bool()
    if over == "texts":
        vectors = pool(hidden, counted, "mean")[counted.any(dim=-1)]
        return -matrix_entropy(vectors, alpha, rows=rows) if len(vectors) > 1 else nothing(hidden)
    usable = counted.sum(dim=-1) >= 2
    if not bool(usable.any()):
        return nothing(hidden)
    return -matrix_entropy(hidden[usable], alpha, rows=rows, mask=counted[usable]).mean()


def variance_covariance_loss(
    hidden: Tensor, mask: Tensor, *, over: Over = "tokens", target: float = 1.0, covariance_weight: float = 0.04
) -> Tensor:
    """Keeps the variance of every dimension of a layer up, and the covariance between dimensions down.

    The sum of two terms, as in VICReg (Bardes et al. 2022) and Seq-VCR (Arefin et al. 2025): the mean over dimensions
    of max(0, target - standard deviation), and `covariance_weight` times the sum of the squared covariances between
    different dimensions, divided by D. It depends on the scale of the hidden states: compare `target` with the metric
    `mean_norm` divided by the square root of D.

    Cost per layer and step: one product of an N x D matrix with itself, and one D x D matrix until the backward pass;
    N is the number of tokens or texts in the batch.

    Args:
        hidden: hidden states, (B, T, D).
        mask: which tokens count, (B, T); padding is 0.
        over: tokens (all tokens of the batch are rows) or texts (their mean vectors are).
        target: standard deviation below which a dimension is pushed up.
        covariance_weight: weight of the covariance term; 0.04 is the ratio of VICReg's two weights.

    Returns:
        One number; 0 if there are fewer than two rows.

    Example:
        >>> import torch
        >>> layerwise.training.variance_covariance_loss(torch.zeros(2, 3, 5), torch.ones(2, 3)).round(decimals=2).item()
        0.9900...
    """
    counted, hidden = mask.bool(), at_least_float32(hidden)
    rows = pool(hidden, counted, "mean")[counted.any(dim=-1)] if over == "texts" else hidden[counted]  # (N, D)
    if len(rows) < 2:
        return nothing(hidden)
    centered = rows - rows.mean(dim=0)
    covariance = centered.mT @ centered / (len(rows) - 1)  # (D, D)
    variances = covariance.diagonal()
    too_small = torch.relu(target - (variances + VARIANCE_FLOOR).sqrt()).mean()
    off_diagonal = (covariance**2).sum() - (variances**2).sum()
    return too_small + covariance_weight * off_diagonal / rows.shape[-1]


def nothing(hidden: Tensor) -> Tensor:
    """Zero that can be differentiated, for a batch without anything to measure."""
    return hidden.sum() * 0.0

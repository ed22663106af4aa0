"""Leave-one-out entropy and effective rank of a sample, from one eigendecomposition.

With few rows per dimension, each row adds its own directions, and the first-order change of the eigenvalues is a poor
approximation. This computation is exact. For a Gram matrix G with eigenvalues l and any s > 0,

    tr G / (G + s)  falls by  s z'(G + s)^-2 z / (1 - z'(G + s)^-1 z)  without the row z,

and the sums in the scores are integrals of tr G / (G + s) over s, computed on a logarithmic grid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from layerwise.metrics.intervals import Influences, IntervalSource, Uncertainty, jackknife, spectral_interval

GRID_REACH, GRID_STEP = (
    20.0,
    0.5,
)  # the grid extends beyond the eigenvalues by a factor of e^20; scores are accurate to 1e-5


@dataclass(frozen=True)
class LeaveOneOut:
    """Eigenvalues (k,), largest scaled to 1; grid of s (S,); decrease of tr G / (G + s) without each row (n, S)."""

    values: Tensor
    grid: Tensor
    decrease: Tensor
    squared_norms: Tensor  # (n,) squared lengths of the rows


def leave_one_out(influences: Influences) -> LeaveOneOut | None:
    """None if no row can be left out: fewer than two rows, or all zero."""
    top = float(influences.values[-1])
    if len(influences.contributions) < 2 or not top > 0:
        return None
    is_nonzero = (
        influences.values > top * max(influences.contributions.shape) * torch.finfo(influences.values.dtype).eps
    )
    values, parts = influences.values[is_nonzero] / top, influences.contributions[:, is_nonzero] / top
    first, last = math.log(float(values[0])) - GRID_REACH, GRID_REACH
    grid = torch.arange(first, last, GRID_STEP, dtype=values.dtype, device=values.device).exp()
    inverse = 1 / (values[:, None] + grid)  # (k, S)
    leverage = parts / values  # (n, k), sums to each row's leverage
    residual = (1 - leverage.sum(dim=1, keepdim=True)).clamp(min=0)
    # 1 - z'(G + s)^-1 z, without cancellation
    denominator = torch.where(residual > 1e-9, residual, 0.0) + leverage @ (inverse * grid)
    return LeaveOneOut(values, grid, grid * (parts @ inverse**2) / denominator, parts.sum(dim=1))


def entropy_leave_one_out(loo: LeaveOneOut) -> Tensor:
    """Leave-one-out Shannon entropy of the eigenvalue shares: log T - sum l log l / T.  -> (n,)"""
    weights = loo.grid * GRID_STEP  # x log x: integral of x/(1+s) - x/(x+s)
    change = loo.squared_norms * (weights / (1 + loo.grid)).sum() - loo.decrease @ weights
    total = loo.values.sum() - loo.squared_norms
    return total.log() - ((loo.values * loo.values.log()).sum() - change) / total


def rank_leave_one_out(loo: LeaveOneOut) -> Tensor:
    """Leave-one-out effective rank: exp of the entropy of the singular value shares.  -> (n,)"""
    weights = loo.grid.sqrt() * GRID_STEP / math.pi  # square root of x: integral of x/(x+s) s^-1/2
    roots = loo.values.sqrt()
    total = roots.sum() - loo.decrease @ weights
    logs = (roots * loo.values.log()).sum() - loo.decrease @ (weights * loo.grid.log())
    return (total.log() - logs / 2 / total).exp()


def exact_interval(
    function: Callable[[Tensor], Tensor],
    leave_one_out_score: Callable[[LeaveOneOut], Tensor],
    warning: Callable[[Influences], str] = lambda found: "",
) -> IntervalSource:
    """For a function of a spectrum with an exact leave-one-out form: uses the larger of both errors.

    The exact error is right for few rows. The first-order error overstates the effect of very long rows, which gives
    better coverage when there are such rows (studies/intervals).
    """
    first_order = spectral_interval(function, warning)

    def uncertainty(influences: Influences) -> Uncertainty:
        loo = leave_one_out(influences)
        return (
            Uncertainty(math.nan)
            if loo is None
            else max(first_order.uncertainty(influences), jackknife(leave_one_out_score(loo)))
        )

    return replace(first_order, uncertainty=uncertainty)

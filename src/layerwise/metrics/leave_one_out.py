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

from layerwise.metrics.intervals import Influences, Spread, Uncertainty, jackknife, spectral_spread

REACH, STEP = 20.0, 0.5  # the grid extends beyond the eigenvalues by a factor of e^20; scores are accurate to 1e-5


@dataclass(frozen=True)
class WithoutRows:
    """Eigenvalues (k,), largest scaled to 1; grid of s (S,); decrease of tr G / (G + s) without each row (n, S)."""

    values: Tensor
    grid: Tensor
    lost: Tensor
    lengths: Tensor  # (n,) squared lengths of the rows


def without_rows(found: Influences) -> WithoutRows | None:
    """None if no row can be left out: fewer than two rows, or all zero."""
    top = float(found.values[-1])
    if len(found.parts) < 2 or not top > 0:
        return None
    seen = found.values > top * max(found.parts.shape) * torch.finfo(found.values.dtype).eps
    values, parts = found.values[seen] / top, found.parts[:, seen] / top
    first, last = math.log(float(values[0])) - REACH, REACH
    grid = torch.arange(first, last, STEP, dtype=values.dtype, device=values.device).exp()
    inverse = 1 / (values[:, None] + grid)  # (k, S)
    share = parts / values  # (n, k), sums to each row's leverage
    beyond = (1 - share.sum(dim=1, keepdim=True)).clamp(min=0)
    # 1 - z'(G + s)^-1 z, without cancellation
    room = torch.where(beyond > 1e-9, beyond, 0.0) + share @ (inverse * grid)
    return WithoutRows(values, grid, grid * (parts @ inverse**2) / room, parts.sum(dim=1))


def entropy_without(rows: WithoutRows) -> Tensor:
    """Leave-one-out Shannon entropy of the eigenvalue shares: log T - sum l log l / T.  -> (n,)"""
    weights = rows.grid * STEP  # x log x: integral of x/(1+s) - x/(x+s)
    change = rows.lengths * (weights / (1 + rows.grid)).sum() - rows.lost @ weights
    total = rows.values.sum() - rows.lengths
    return total.log() - ((rows.values * rows.values.log()).sum() - change) / total


def rank_without(rows: WithoutRows) -> Tensor:
    """Leave-one-out effective rank: exp of the entropy of the singular value shares.  -> (n,)"""
    weights = rows.grid.sqrt() * STEP / math.pi  # square root of x: integral of x/(x+s) s^-1/2
    roots = rows.values.sqrt()
    total = roots.sum() - rows.lost @ weights
    logs = (roots * rows.values.log()).sum() - rows.lost @ (weights * rows.grid.log())
    return (total.log() - logs / 2 / total).exp()


def exact_spread(
    function: Callable[[Tensor], Tensor],
    without: Callable[[WithoutRows], Tensor],
    doubt: Callable[[Influences], str] = lambda found: "",
) -> Spread:
    """For a function of a spectrum with an exact leave-one-out form: uses the larger of both errors.

    The exact error is right for few rows. The first-order error overstates the effect of very long rows, which gives
    better coverage when there are such rows (studies/intervals).
    """
    first = spectral_spread(function, doubt)

    def error(found: Influences) -> Uncertainty:
        rows = without_rows(found)
        return Uncertainty(math.nan) if rows is None else max(first.error(found), jackknife(without(rows)))

    return replace(first, error=error)

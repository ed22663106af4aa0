"""Prompt entropy: how many directions the tokens of a prompt spread over; plain and normalised."""

from functools import partial

import torch
from torch import Tensor

from layerwise.core.checks import EntropyRoute
from layerwise.metrics.base import Metric
from layerwise.metrics.ops.entropy_products import entropy_by_products
from layerwise.metrics.ops.rows import RowTreatment, treat_rows
from layerwise.metrics.ops.spectrum import matrix_entropy, smaller_gram
from layerwise.metrics.readings import Reading, per_prompt_values
from layerwise.metrics.scores import mean_score


def prompt_entropy(
    tokens: Tensor, mask: Tensor, *, rows: RowTreatment = "raw", entropy: EntropyRoute = "exact"
) -> Tensor:
    """Matrix-based entropy of the tokens of each prompt, in nats.

    0 where all tokens lie on one line; at most log min(T, D).

    Args:
        tokens: hidden states, (B, T, D).
        mask: which tokens count, (B, T); padding is 0.
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.
        entropy: exact (from eigenvalues), or products (by matrix products, within 0.001 nats; for GPUs).

    Returns:
        One number per prompt, (B,); NaN if fewer than two tokens count or all are zero.

    Example:
        >>> import torch
        >>> round(layerwise.functional.prompt_entropy(torch.eye(4)[None], torch.ones(1, 4)).item(), 4)
        1.3863
    """
    found = (
        entropy_by_products(smaller_gram(treat_rows(tokens, rows, mask)))
        if entropy == "products"
        else matrix_entropy(tokens, rows=rows, mask=mask)
    )
    return torch.where(mask.sum(dim=-1) >= 2, found, torch.nan)


def normalized_prompt_entropy(tokens: Tensor, mask: Tensor, *, rows: RowTreatment = "raw") -> Tensor:
    """Prompt entropy divided by its maximum: 0 to 1, so that prompts of different length can be compared.

    Args:
        tokens: hidden states, (B, T, D).
        mask: which tokens count, (B, T); padding is 0.
        rows: what is done to the rows first: raw, unit (length 1), centered, or centered_unit.

    Returns:
        One number per prompt, (B,); nan where prompt entropy is nan, and where its maximum is log 1.

    Example:
        >>> import torch
        >>> round(layerwise.functional.normalized_prompt_entropy(torch.eye(4)[None], torch.ones(1, 4)).item(), 4)
        1.0
    """
    return both_entropies(tokens, mask, rows=rows)[:, 1]


def both_entropies(tokens: Tensor, mask: Tensor, *, rows: RowTreatment, entropy: EntropyRoute = "exact") -> Tensor:
    """Prompt entropy and its normalised form, computed once.  -> (B, 2)"""
    plain = prompt_entropy(tokens, mask, rows=rows, entropy=entropy)
    return torch.stack([plain, plain / entropy_bound(mask, tokens.shape[-1], rows)], dim=-1)


def entropy_bound(mask: Tensor, width: int, rows: RowTreatment) -> Tensor:
    """log min(T, D), or log min(T - 1, D) for centred rows, since centring removes one direction; NaN if it is 0."""
    directions = mask.sum(dim=-1) - (1 if rows in ("centered", "centered_unit") else 0)
    bound = directions.clamp(min=1, max=width).double().log()
    return torch.where(bound > 0, bound, torch.nan)


def reading(rows: RowTreatment) -> Reading:
    columns = ("prompt_entropy", "prompt_entropy_normalized")
    return per_prompt_values(f"prompt_entropy/{rows}", partial(both_entropies, rows=rows), columns, shared=True)


def products_reading(rows: RowTreatment) -> Reading:
    """The same numbers by matrix products; under another name, so that the two are never merged."""
    columns = ("prompt_entropy", "prompt_entropy_normalized")
    function = partial(both_entropies, rows=rows, entropy="products")
    return per_prompt_values(f"prompt_entropy_products/{rows}", function, columns, shared=True)


METRIC = Metric(
    name="prompt_entropy",
    perspective="information",
    larger_means="a prompt's tokens spread over more directions (less compressed)",
    unit="nats",
    rows=("raw", "unit", "centered", "centered_unit"),
    reading=reading,
    products_reading=products_reading,
    score=mean_score(0),
    cite="Skean et al. 2025, sec. 3.2, Eq. 1; Giraldo et al. 2015",
)

NORMALIZED = Metric(
    name="prompt_entropy_normalized",
    perspective="information",
    larger_means="a prompt's tokens spread over more of the possible directions",
    unit="fraction of log min(T, D)",
    rows=METRIC.rows,
    reading=reading,
    products_reading=products_reading,
    score=mean_score(1),
    cite="Skean et al. 2025, app. F",
)

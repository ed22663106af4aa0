"""Entropy of a Gram matrix by matrix products alone, for devices that solve eigenvalue problems one by one.

Tr f(P) of f(x) = -x log x is needed for P, the matrix divided by its trace. The largest eigenvalues are found by
subspace iteration and taken out; what is left lies in a short interval, on which a polynomial stands for f. Traces of
all its terms follow from few products: with T_i the Chebyshev polynomials, 2 T_i T_j = T_(i+j) + T_(i-j).

The polynomial is fitted to f on a grid that is mostly logarithmic, because eigenvalues of hidden states fall off like a
power law: the Chebyshev series of the same degree is ten times worse. Errors are in benchmarks/README.md.
"""

import functools
import math

import torch
from torch import Tensor

from layerwise.metrics.ops.spectrum import renyi_entropy, shannon_entropy, symmetric_eigenvalues

STEPS = 8  # the polynomial has degree STEPS ** 2, from 2 (STEPS - 1) - 1 products
LARGEST, SPARE = 8, 16  # eigenvalues that are taken out; further directions that help to find them
ITERATIONS = 8
SMALLEST_SIZE = 4 * (LARGEST + SPARE)  # below, eigenvalues are cheap
# The remainder has negative eigenvalues by rounding, on which a polynomial of a high degree explodes unless they are
# tiny beside its interval.
SHORTEST_INTERVAL = 4e-3  # relative to the largest eigenvalue
GRID, GRID_START, EVEN_WEIGHT = 4000, -6, 0.2  # points, the exponent of the first, and the weight of evenly spaced ones


def entropy_by_products(gram: Tensor) -> Tensor:
    """Shannon entropy of the eigenvalues of positive semidefinite matrices, in nats; NaN where a matrix is zero.

    gram (..., n, n), of at least float32 -> (...). Small matrices are solved exactly.
    """
    n = gram.shape[-1]
    if n < SMALLEST_SIZE:
        return renyi_entropy(symmetric_eigenvalues(gram).clamp(min=0))
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    p = gram / torch.where(trace > 0, trace, 1.0)[..., None, None]
    largest, rest = without_largest(p)
    values = largest.double()
    interval = torch.maximum(norm_bound(rest), SHORTEST_INTERVAL * values.amax(dim=-1).clamp(min=1e-30))
    rest_trace = rest.diagonal(dim1=-2, dim2=-1).sum(dim=-1, dtype=torch.float64)
    # f(x) of x = interval * y is interval * f(y) - x log(interval).
    entropy = interval * polynomial_trace(rest / interval.to(p)[..., None, None]) - rest_trace * interval.log()
    entropy = shannon_entropy(values.clamp(min=0)) + entropy
    return torch.where(trace > 0, entropy.clamp(min=0), torch.nan).to(gram)


def without_largest(p: Tensor) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues (..., LARGEST), and the matrix without their directions."""
    n = p.shape[-1]
    start = torch.randn(n, LARGEST + SPARE, generator=torch.Generator().manual_seed(0)).to(p)
    basis = start.expand(*p.shape[:-2], *start.shape)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(p @ basis).Q
    small = basis.mT @ (p @ basis)
    directions = basis @ torch.linalg.eigh((small + small.mT) / 2).eigenvectors[..., -LARGEST:]
    image = p @ directions
    inner = directions.mT @ image
    cross = image @ directions.mT
    return inner.diagonal(dim1=-2, dim2=-1), p - cross - cross.mT + directions @ inner @ directions.mT


def norm_bound(matrix: Tensor) -> Tensor:
    """An upper bound of the eigenvalues of a symmetric matrix, in float64: an eighth power, or the sum of a row."""
    squared = matrix @ matrix
    fourth = squared @ squared
    by_power = fourth.square().sum(dim=(-2, -1), dtype=torch.float64) ** 0.125
    return torch.minimum(by_power, matrix.abs().sum(dim=-1, dtype=torch.float64).amax(dim=-1))


def polynomial_trace(y: Tensor) -> Tensor:
    """The trace of the polynomial of a matrix with eigenvalues from 0 to 1, in float64."""
    n = y.shape[-1]
    identity = torch.eye(n, dtype=y.dtype, device=y.device)
    x = 2 * y - identity
    terms = [identity.expand_as(x), x]
    for _ in range(STEPS - 1):
        terms.append(2 * (x @ terms[-1]) - terms[-2])
    traces = [term.diagonal(dim1=-2, dim2=-1).sum(dim=-1, dtype=torch.float64) for term in terms]
    before, current = terms[0], terms[STEPS]
    for k in range(1, STEPS):
        for j in range(1, STEPS + 1):
            product = (current * terms[j]).sum(dim=(-2, -1), dtype=torch.float64)
            traces.append(2 * product - traces[k * STEPS - j])
        if k < STEPS - 1:
            before, current = current, 2 * (terms[STEPS] @ current) - before
    coefficients = fitted_coefficients(STEPS**2)
    at_zero = sum(c * (-1) ** j for j, c in enumerate(coefficients))
    weights = torch.tensor(coefficients, dtype=torch.float64, device=y.device)
    total: Tensor = torch.stack(traces, dim=-1) @ weights - n * at_zero
    return total


@functools.cache
def fitted_coefficients(degree: int) -> tuple[float, ...]:
    """Chebyshev coefficients of the polynomial nearest to -x log x on the grid, and 0 at 0."""
    by_power = torch.logspace(GRID_START, 0, GRID, dtype=torch.float64)
    angles = (torch.arange(GRID, dtype=torch.float64) + 0.5) * math.pi / GRID
    x = torch.cat([by_power, (1 + angles.cos()) / 2])  # the second part keeps the ends of the interval in order
    weights = torch.cat([torch.ones(GRID), torch.full((GRID,), EVEN_WEIGHT)]).double()
    j = torch.arange(degree + 1, dtype=torch.float64)
    terms = torch.cos(torch.arccos(2 * x - 1)[:, None] * j) - (-1.0) ** j
    penalty = 1e-6 * math.sqrt(GRID) * torch.eye(degree + 1, dtype=torch.float64)
    wanted = torch.cat([-x * x.log() * weights, torch.zeros(degree + 1, dtype=torch.float64)])
    found = torch.linalg.lstsq(torch.cat([terms * weights[:, None], penalty]), wanted[:, None]).solution[:, 0]
    return tuple(found.tolist())

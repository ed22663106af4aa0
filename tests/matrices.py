"""Hypothesis strategies and seeded inputs: sizes, matrices, masks."""

import torch
from hypothesis import strategies as st
from torch import Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@st.composite
def matrices(draw: st.DrawFn, min_rows: int = 2, max_rows: int = 12, max_width: int = 9) -> Tensor:
    """Matrices with spectra from flat to steep, sometimes of low rank, sometimes with a large offset."""
    n, d = draw(st.integers(min_rows, max_rows)), draw(st.integers(2, max_width))
    z = normal(n, d, seed=draw(st.integers(0, 2**31)))
    z = z * torch.exp(-draw(st.floats(0, 1.5)) * torch.arange(d))
    if draw(st.booleans()):
        z[:, draw(st.integers(1, d - 1)) :] = 0
    return z + draw(st.sampled_from([0.0, 3.0]))


def rotation(width: int, seed: int) -> Tensor:
    return torch.linalg.qr(normal(width, width, seed=seed)).Q

"""Inputs at the edge: one token, two tokens, all zero, constant, NaN, infinite, empty. Each has a defined answer."""

import math

import pytest
import torch
from matrices import normal

from layerwise import functional as F
from layerwise.core.errors import InputError, NotFiniteError

ZERO, CONSTANT = torch.zeros(5, 7), torch.full((5, 7), 0.3)
nan = math.nan


def mask(n):
    return torch.ones(1, n, dtype=torch.bool)


def prompt(function, z):
    return float(function(z[None], mask(len(z))))


@pytest.mark.parametrize(
    ("function", "one_token", "two_tokens", "all_zero", "constant"),
    [
        (lambda z: prompt(F.prompt_entropy, z), nan, "value", nan, 0.0),
        (lambda z: prompt(F.normalized_prompt_entropy, z), nan, "value", nan, 0.0),
        (lambda z: prompt(F.curvature, z), nan, nan, nan, nan),
        (lambda z: prompt(F.mean_norm, z), "value", "value", 0.0, 0.3 * math.sqrt(7)),
        (lambda z: float(F.matrix_entropy(z)), 0.0, "value", nan, 0.0),
        (lambda z: float(F.matrix_entropy(z, 2)), 0.0, "value", nan, 0.0),
        (lambda z: float(F.matrix_entropy(z, rows="centered_unit")), nan, 0.0, nan, nan),
        (lambda z: float(F.effective_rank(z)), 1.0, "value", nan, 1.0),
        (lambda z: float(F.participation(z)), 1.0, "value", nan, 1.0),
        (lambda z: float(F.top_share(z)), 1.0, "value", nan, 1.0),
        (lambda z: float(F.anisotropy(z)), nan, "value", nan, 1.0),
        (lambda z: float(F.intrinsic_dimension(z)), nan, nan, nan, nan),
        (lambda z: float(F.linear_cka(z, z)), nan, 1.0, nan, nan),
        (lambda z: float(F.block_influence(z, z)), 0.0, 0.0, nan, 0.0),
        (lambda z: float(F.infonce(z, z)), 0.0, "value", math.log(5), math.log(5)),
        (lambda z: float(F.dime(z, z)), 0.0, "value", nan, 0.0),
        (lambda z: float(F.lidar(torch.stack([z, z + 0.01], dim=1))), nan, 1.0, nan, nan),
    ],
)
def test_every_edge_has_a_defined_answer(function, one_token, two_tokens, all_zero, constant):
    inputs = (normal(1, 7).float(), normal(2, 7).float(), ZERO, CONSTANT)
    for z, expected in zip(inputs, (one_token, two_tokens, all_zero, constant), strict=True):
        got = function(z)
        assert math.copysign(1, got) > 0 or got != 0, "-0"
        if expected == "value":
            assert math.isfinite(got)
        else:
            assert got == pytest.approx(expected, abs=1e-5, nan_ok=True)


FUNCTIONS = [
    lambda z: F.prompt_entropy(z[None], mask(len(z))),
    lambda z: F.curvature(z[None], mask(len(z))),
    lambda z: F.mean_norm(z[None], mask(len(z))),
    F.matrix_entropy,
    lambda z: F.matrix_entropy(z, rows="centered_unit"),
    F.effective_rank,
    F.anisotropy,
    F.intrinsic_dimension,
    lambda z: F.linear_cka(z, z),
    lambda z: F.block_influence(z, z),
    lambda z: F.infonce(z, z),
    lambda z: F.dime(z, z),
    lambda z: F.lidar(z[:, None]),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_are_refused_by_name(function, bad):
    z = normal(5, 7)
    z[3, 2] = bad
    with pytest.raises(NotFiniteError, match="NaN or infinity in [12] of"):
        function(z)


@pytest.mark.parametrize("function", [F.matrix_entropy, F.effective_rank, F.intrinsic_dimension, *FUNCTIONS[-5:]])
def test_empty_input_is_refused(function):
    with pytest.raises(InputError):
        function(torch.zeros(0, 7))


def test_two_copies_do_not_upset_the_intrinsic_dimension():
    z = normal(100, 3)
    copied = torch.cat([z, z[:1]])
    assert float(F.intrinsic_dimension(copied)) == pytest.approx(float(F.intrinsic_dimension(z)), rel=0.1)


def test_wrong_words_are_answered_with_the_right_ones():
    with pytest.raises(InputError, match="raw, unit, centered, centered_unit"):
        F.matrix_entropy(normal(3, 2), rows="centred")
    with pytest.raises(InputError, match="mean, last, first, max"):
        F.pool(normal(1, 3, 2), mask(3), "median")
    with pytest.raises(InputError, match="above 0"):
        F.matrix_entropy(normal(3, 2), 0)
    with pytest.raises(InputError, match="floats"):
        F.matrix_entropy(torch.ones(3, 2, dtype=torch.int64))

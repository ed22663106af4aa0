"""The map between the vectors of two models, against SciPy and NumPy."""

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes

from layerwise.maps.alignment import fit_alignment, fit_orthogonal, of_rank
from layerwise.maps.ridge import fit_ridge


def rows_of(seed, count, width):
    return np.random.default_rng(seed).normal(size=(count, width)) * np.arange(1, width + 1)


def test_the_rotation_is_the_one_of_scipy_with_the_best_scale():
    rows = rows_of(0, 80, 6)
    targets = rows @ np.linalg.qr(rows_of(1, 6, 6))[0] * 3 + 7 + 0.5 * rows_of(2, 80, 6)
    found = fit_orthogonal(*map(torch.from_numpy, (rows, targets)))
    centered, wanted = rows - rows.mean(axis=0), targets - targets.mean(axis=0)
    rotation, _ = orthogonal_procrustes(centered, wanted)
    scale = np.linalg.lstsq((centered @ rotation).reshape(-1, 1), wanted.ravel(), rcond=None)[0][0]
    np.testing.assert_allclose(found.weight.numpy(), scale * rotation.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        found(torch.from_numpy(rows)).numpy(), scale * centered @ rotation + targets.mean(axis=0)
    )


@pytest.mark.parametrize("widths", [(5, 8), (8, 5)])
def test_between_spaces_of_different_widths_the_smaller_one_is_only_turned(widths):
    rows, targets = (torch.from_numpy(rows_of(i, 60, width)) for i, width in enumerate(widths))
    weight = fit_orthogonal(rows, targets).weight
    product = weight @ weight.mT if widths[0] > widths[1] else weight.mT @ weight
    torch.testing.assert_close(product, product[0, 0] * torch.eye(5, dtype=torch.float64))


def test_a_map_of_low_rank_is_the_best_one_of_that_rank_for_its_rows():
    rows, targets = torch.from_numpy(rows_of(0, 200, 6)), torch.from_numpy(rows_of(3, 200, 4))
    linear = fit_ridge(rows, targets, rows, targets).linear
    small = of_rank(linear, rows, 2)
    assert torch.linalg.matrix_rank(small.weight) == 2
    results = linear(rows)
    left, values, right = np.linalg.svd((results - results.mean(dim=0)).numpy(), full_matrices=False)
    expected = left[:, :2] * values[:2] @ right[:2] + results.mean(dim=0).numpy()
    np.testing.assert_allclose(small(rows).numpy(), expected, atol=1e-9)


def test_held_out_rows_say_which_kind_is_kept():
    """With many texts the free map is best; a rotation seen through a few noisy texts is found only by a rotation."""
    turn = np.linalg.qr(rows_of(1, 30, 30))[0]
    rows, held = np.random.default_rng(2).normal(size=(2, 60, 30))
    noise = np.random.default_rng(3).normal(size=(60, 30))
    few = fit_alignment(*map(torch.from_numpy, (rows, rows @ turn + 0.5 * noise, held, held @ turn)))
    assert few.kind == "orthogonal" and few.unexplained["orthogonal"] < 0.6 * few.unexplained["ridge"]
    stretched = turn * np.linspace(0.2, 3, 30)
    many = np.random.default_rng(4).normal(size=(900, 30))
    free = fit_alignment(*map(torch.from_numpy, (many, many @ stretched, held, held @ stretched)))
    assert free.kind == "ridge" and free.unexplained["ridge"] < 1e-6 < free.unexplained["orthogonal"]
    assert {kind.partition(" ")[0] for kind in free.unexplained} == {"ridge", "orthogonal", "rank"}

"""Laws that every metric keeps, over random matrices, and independent oracles: loops, SciPy, scikit-learn, skdim."""

import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial.distance
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import matrices, normal, rotation
from sklearn.metrics.pairwise import cosine_similarity
from torch.autograd import gradcheck

from layerwise import functional as F
from layerwise.metrics.ops.geometry import turning_angles
from layerwise.metrics.ops.spectrum import renyi_entropy, spectrum

seeds = st.integers(0, 2**31)
close = pytest.approx


def everything(n):
    return torch.ones(1, n, dtype=torch.bool)


# ---- spectra and entropies


@given(matrices())
def test_exp_entropy_is_at_most_effective_rank_which_is_at_most_rank(z):
    rank = int(torch.linalg.matrix_rank(z))
    assert F.matrix_entropy(z).exp() <= F.effective_rank(z) * (1 + 1e-9)
    assert F.effective_rank(z) <= rank * (1 + 1e-9)


def test_the_order_of_that_chain_on_the_smallest_example():
    z = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert float(F.matrix_entropy(z).exp()) == close(1.3841, abs=1e-4)
    assert float(F.effective_rank(z)) == close(1.7548, abs=1e-4)
    assert float(F.effective_rank(z @ z.mT)) == close(float(F.matrix_entropy(z).exp()), abs=1e-12)


@given(matrices(), st.floats(0.05, 6), st.floats(0.05, 6))
def test_entropy_never_grows_with_its_order(z, one, other):
    low, high = sorted((one, other))
    assert F.matrix_entropy(z, high) <= F.matrix_entropy(z, low) + 1e-9
    assert F.matrix_entropy(z, math.inf) <= F.matrix_entropy(z, high) + 1e-9


@given(matrices())
def test_order_two_needs_no_eigenvalues(z):
    assert float(F.matrix_entropy(z, 2)) == close(float(renyi_entropy(spectrum(z), 2)), abs=1e-10)


@given(matrices(), st.sampled_from([1 - 1e-6, 1 + 1e-6]))
def test_order_one_is_the_limit_of_its_neighbours(z, alpha):
    assert float(F.matrix_entropy(z, alpha)) == close(float(F.matrix_entropy(z)), abs=1e-4)


@given(matrices())
def test_spectrum_is_that_of_either_gram_matrix_and_of_scipys_singular_values(z):
    mine = spectrum(z).numpy()[::-1]
    theirs = scipy.linalg.svdvals(z.numpy()) ** 2
    assert mine == close(theirs, abs=1e-10 * theirs[0])
    assert float(F.matrix_entropy(z)) == close(float(F.matrix_entropy(z.mT)), abs=1e-9)


@pytest.mark.parametrize("metric", [F.matrix_entropy, F.effective_rank, F.participation, F.top_share, F.anisotropy])
@given(z=matrices(), seed=seeds, scale=st.floats(0.01, 100))
def test_spectral_metrics_ignore_rotation_scale_and_row_order(metric, z, seed, scale):
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))
    moved = scale * z[order] @ rotation(z.shape[1], seed)
    assert float(metric(moved)) == close(float(metric(z)), abs=1e-8, rel=1e-8)


@given(matrices(), st.sampled_from(["raw", "unit", "centered", "centered_unit"]), st.integers(1, 5), st.floats(0.2, 3))
def test_padding_never_changes_an_entropy(z, rows, padding, alpha):
    padded = torch.cat([z, torch.full((padding, z.shape[1]), math.nan, dtype=z.dtype)])
    mask = torch.arange(len(padded)) < len(z)
    alone, among = F.matrix_entropy(z, alpha, rows=rows), F.matrix_entropy(padded, alpha, rows=rows, mask=mask)
    assert float(among) == close(float(alone), abs=1e-9, nan_ok=True)
    assert float(F.effective_rank(padded, rows=rows, mask=mask)) == close(
        float(F.effective_rank(z, rows=rows)), rel=1e-6, nan_ok=True
    )


def test_a_batch_is_the_matrices_one_by_one():
    z = normal(2, 3, 5, 7)
    assert torch.allclose(F.matrix_entropy(z), torch.stack([F.matrix_entropy(m) for m in z.flatten(0, 1)]).view(2, 3))


def test_half_precision_is_computed_in_single():
    z = normal(11, 7).bfloat16()
    assert F.matrix_entropy(z).dtype == torch.float32
    assert float(F.matrix_entropy(z)) == close(float(F.matrix_entropy(z.double())), rel=1e-5)


@given(matrices(min_rows=3), st.sampled_from(["raw", "centered", "centered_unit"]))
def test_normalized_prompt_entropy_lies_between_0_and_1(z, rows):
    got = float(F.normalized_prompt_entropy(z[None], everything(len(z)), rows=rows))
    assert math.isnan(got) or -1e-12 <= got <= 1 + 1e-9


def test_normalized_prompt_entropy_is_one_for_orthogonal_tokens():
    assert float(F.normalized_prompt_entropy(torch.eye(5)[None], everything(5))) == close(1, abs=1e-6)
    assert float(F.normalized_prompt_entropy(torch.eye(5)[None], everything(5), rows="centered")) == close(1, abs=1e-6)


# ---- curvature


def test_a_right_angle_is_half_pi():
    staircase = torch.tensor([[[0.0, 0], [1, 0], [1, 1], [2, 1]]])
    assert torch.allclose(F.curvature(staircase, everything(4)), torch.tensor(math.pi / 2))


def test_a_u_turn_is_pi_and_not_zero():
    assert float(F.curvature(torch.tensor([[[0.0], [1.0], [0.0]]]), everything(3))) == close(math.pi)


def naive_curvature(tokens, mask):
    turns = []
    for i in range(len(tokens) - 2):
        if not all(mask[i : i + 3]):
            continue
        u, v = tokens[i + 1] - tokens[i], tokens[i + 2] - tokens[i + 1]
        cosine = u @ v / (np.linalg.norm(u) * np.linalg.norm(v))
        turns.append(math.acos(np.clip(cosine, -1, 1)))
    return np.mean(turns) if turns else math.nan


@given(seeds)
def test_curvature_is_the_mean_of_a_plain_loop_over_adjacent_counted_tokens(seed):
    tokens = normal(2, 7, 5, seed=seed)
    mask = torch.rand(2, 7, generator=torch.Generator().manual_seed(seed)) > 0.2
    expected = [naive_curvature(t.numpy(), m.tolist()) for t, m in zip(tokens, mask, strict=True)]
    assert F.curvature(tokens, mask).tolist() == close(expected, abs=1e-7, nan_ok=True)


@given(seeds, st.floats(0.01, 100))
def test_curvature_ignores_rotation_scale_shift_and_padding(seed, scale):
    tokens = normal(1, 7, 5, seed=seed)
    moved = torch.cat([scale * tokens @ rotation(5, seed) + 3, torch.full((1, 2, 5), math.nan).double()], dim=1)
    mask = torch.arange(9)[None] < 7
    assert float(F.curvature(moved, mask)) == close(float(F.curvature(tokens, everything(7))), abs=1e-9)


def test_the_angle_is_exact_where_arccos_is_not():
    steps = torch.tensor([[[1.0, 0.0], [1.0, 1e-9], [-1.0, 0.0]]], dtype=torch.float64)
    small, large = turning_angles(steps, steps.norm(dim=-1))[0].tolist()
    assert small == close(1e-9, rel=1e-6)
    assert large == close(math.pi - 1e-9, abs=1e-15)


@pytest.mark.parametrize("scale", [1e-16, 1.0, 1e16])
def test_curvature_of_float32_paths_is_that_of_float64(scale):
    """Turns of all sizes, nearly straight ones and reversals too; lengths whose products are near float32's limits."""
    sizes = 10.0 ** torch.linspace(-6, 0.4, 40, dtype=torch.float64)
    headings = torch.cat([sizes, math.pi - sizes]).cumsum(0)
    steps = torch.stack([headings.cos(), headings.sin()], dim=-1)[None]
    found = turning_angles((steps * scale).float(), (steps * scale).float().norm(dim=-1))
    true = turning_angles(steps, steps.norm(dim=-1))
    assert (found - true).abs().max() < 3e-6


# ---- invariance


@given(seeds, st.floats(0.05, 2))
def test_infonce_is_the_plain_double_loop(seed, temperature):
    a, b = normal(7, 5, seed=seed), normal(7, 5, seed=seed + 1)
    cosine = cosine_similarity(a.numpy(), b.numpy()) / temperature
    loss = lambda s: -np.mean([s[i, i] - np.log(sum(math.exp(s[i, j]) for j in range(7))) for i in range(7)])  # noqa: E731
    assert float(F.infonce(a, b, temperature=temperature)) == close((loss(cosine) + loss(cosine.T)) / 2, abs=1e-10)


def naive_lidar(views, ridge=1e-4):
    n, q, d = views.shape
    overall = views.reshape(-1, d).mean(axis=0)
    between, within = np.zeros((d, d)), np.zeros((d, d))
    for prompt in views:
        mean = prompt.mean(axis=0)
        between += np.outer(mean - overall, mean - overall) / n
        for view in prompt:
            within += np.outer(view - mean, view - mean) / (n * q)
    root = np.linalg.inv(scipy.linalg.sqrtm(within + ridge * np.eye(d)).real)
    values = np.linalg.eigvalsh(root @ between @ root)
    p = values[values > 1e-12 * values[-1]]
    p = p / p.sum()
    return math.exp(-(p * np.log(p)).sum())


@given(seeds, st.sampled_from([(11, 3, 5), (3, 5, 7)]), st.floats(0.1, 2))
def test_lidar_is_the_plain_loop_with_scipys_matrix_root(seed, shape, noise):
    n, q, d = shape
    views = normal(n, 1, d, seed=seed) + noise * normal(n, q, d, seed=seed + 1)
    assert float(F.lidar(views)) == close(naive_lidar(views.numpy()), rel=1e-6)


def test_dime_is_near_zero_for_unrelated_views():
    a, b = normal(200, 7, seed=1), normal(200, 7, seed=2)
    aligned = F.dime(a, a + 0.1 * normal(200, 7, seed=3))
    assert abs(float(F.dime(a, b))) < 0.02 < 0.2 < float(aligned)


def test_dime_sees_the_pairing():
    a = normal(61, 7)
    b = a + 0.1 * normal(61, 7, seed=1)
    assert float(F.dime(a, b)) - float(F.dime(a, b.roll(1, dims=0))) > 0.2


def test_dime_is_reproducible_and_its_seed_matters():
    a, b = normal(31, 5), normal(31, 5, seed=1)
    assert F.dime(a, b) == F.dime(a, b)
    assert F.dime(a, b, seed=1) != F.dime(a, b, seed=2)


def test_dime_of_collapsed_views_is_zero():
    assert float(F.dime(torch.ones(11, 3), torch.ones(11, 3))) == close(0, abs=1e-9)


# ---- dimension, direction, likeness


@pytest.mark.parametrize("discard", [0.05, 0.1, 0.3])
def test_intrinsic_dimension_is_scikit_dimensions_twonn(discard):
    import skdim

    z = normal(300, 5)
    z = torch.cat([z, z.square()], dim=1)
    theirs = skdim.id.TwoNN(discard_fraction=discard).fit(z.numpy()).dimension_
    assert float(F.intrinsic_dimension(z, discard=discard)) == close(theirs, rel=1e-9)


def test_intrinsic_dimension_finds_a_plane_in_space():
    plane = normal(1500, 2) @ normal(2, 31, seed=1)
    assert float(F.intrinsic_dimension(plane)) == close(2, abs=0.2)


@given(matrices(min_rows=3))
def test_anisotropy_is_the_mean_of_scikit_learns_cosines(z):
    cosine = cosine_similarity(z.numpy())
    off = ~np.eye(len(z), dtype=bool)
    assert float(F.anisotropy(z)) == close(cosine[off].mean(), abs=1e-10)


def naive_cka(a, b):
    """HSIC by its definition with the centring matrix H."""
    n = len(a)
    h = np.eye(n) - 1 / n
    hsic = lambda k, m: np.trace(k @ h @ m @ h)  # noqa: E731
    k, m = a @ a.T, b @ b.T
    return hsic(k, m) / math.sqrt(hsic(k, k) * hsic(m, m))


@given(seeds, st.sampled_from([(5, 7, 3), (31, 7, 5)]))
def test_linear_cka_is_hsic_by_its_definition(seed, shape):
    n, d, e = shape
    a = normal(n, d, seed=seed)
    b = a[:, :e] + 0.5 * normal(n, e, seed=seed + 1)
    assert float(F.linear_cka(a, b)) == close(naive_cka(a.numpy(), b.numpy()), abs=1e-10)
    assert float(F.linear_cka(a, 3 * a @ rotation(d, seed) + 1)) == close(1, abs=1e-10)


def test_mean_norm_is_the_mean_length_of_counted_tokens():
    tokens, mask = normal(2, 5, 7), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    expected = [np.linalg.norm(tokens[0, :3], axis=1).mean(), np.linalg.norm(tokens[1], axis=1).mean()]
    assert F.mean_norm(tokens, mask).tolist() == close(expected)


@pytest.mark.parametrize("pooling", ["mean", "last", "first", "max"])
def test_pooling_reads_only_tokens_that_count(pooling):
    tokens, mask = normal(2, 5, 7), torch.tensor([[0, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    tokens[0, 3:] = math.nan
    naive = {"mean": lambda r: r.mean(0), "last": lambda r: r[-1], "first": lambda r: r[0], "max": lambda r: r.amax(0)}
    expected = torch.stack([naive[pooling](t[m]) for t, m in zip(tokens, mask, strict=True)])
    assert torch.allclose(F.pool(tokens, mask, pooling), expected)
    assert F.pool(tokens, torch.zeros(2, 5, dtype=torch.bool), pooling).isnan().all()


# ---- gradients


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda z: F.matrix_entropy(z), [(5, 7)]),
        (lambda z: F.matrix_entropy(z, 2), [(7, 5)]),
        (lambda z: F.matrix_entropy(z, 0.5, rows="centered_unit"), [(5, 7)]),
        (lambda z: F.effective_rank(z), [(5, 7)]),
        (lambda z: F.prompt_entropy(z, torch.tensor([[1, 1, 1, 1, 0]]).bool()), [(1, 5, 7)]),
        (lambda z: F.curvature(z, torch.tensor([[1, 1, 1, 1, 0]]).bool()), [(1, 5, 7)]),
        (lambda a, b: F.infonce(a, b), [(5, 3), (5, 3)]),
        (lambda a, b: F.dime(a, b, permutations=2), [(5, 7), (5, 7)]),
        (lambda v: F.lidar(v, ridge=0.1), [(3, 5, 7)]),
        (lambda z: F.anisotropy(z), [(5, 3)]),
        (lambda a, b: F.linear_cka(a, b), [(7, 3), (7, 2)]),
    ],
)
def test_gradients_agree_with_finite_differences(function, shapes):
    inputs = [normal(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert gradcheck(function, inputs, atol=1e-5)


def test_gradients_are_finite_where_a_row_is_zero_or_a_step_stands_still():
    z = normal(5, 7)
    z[2] = 0
    z[4] = z[3]
    z.requires_grad_()
    (F.matrix_entropy(z, rows="unit") + F.effective_rank(z) + F.curvature(z[None], everything(5)).sum()).backward()
    assert torch.isfinite(z.grad).all()


def test_eigenvalues_that_do_not_converge_are_found_in_a_steadier_way(monkeypatch):
    """Prompts of one repeated token did this to LAPACK in float32; no small matrix does it reliably, so we pretend."""
    from layerwise.metrics.ops import spectrum as room

    z, real = normal(7, 5).float(), torch.linalg.eigvalsh
    expected = float(F.matrix_entropy(z))

    def fails_below(dtype):
        def eigvalsh(gram):
            if gram.dtype == torch.float32 or dtype == torch.float64:
                raise torch.linalg.LinAlgError("failed to converge")
            return real(gram)

        return eigvalsh

    for dtype in (torch.float32, torch.float64):
        monkeypatch.setattr(room.torch.linalg, "eigvalsh", fails_below(dtype))
        assert float(F.matrix_entropy(z)) == close(expected, rel=1e-5)

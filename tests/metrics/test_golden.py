"""Independent values of every metric on seeded inputs, reproduced to 1e-9 in float64."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from layerwise import functional as F

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
VALUES = GOLDEN["values"]
ROWS = {"raw_gram": "raw", "raw": "raw", "unit_rows": "unit", "centred_unit_rows": "centered_unit"}


def make_inputs():
    tensor = torch.from_numpy
    made = {
        "Z16x8": np.random.default_rng(0).standard_normal((16, 8)),
        "Z8x16": np.random.default_rng(1).standard_normal((8, 16)),
        "Z16x8_offset": np.random.default_rng(0).standard_normal((16, 8)) + 3.0,
    }
    for name, seed, (n, q, d) in (("views12x4x6", 2, (12, 4, 6)), ("views5x4x9", 4, (5, 4, 9))):
        rng = np.random.default_rng(seed)
        made[name] = rng.standard_normal((n, 1, d)) + 0.3 * rng.standard_normal((n, q, d))
    rng = np.random.default_rng(3)
    prompts = [rng.standard_normal((n, 8)) + rng.standard_normal(8) for n in (5, 7, 9, 6, 8, 10)]
    return {name: tensor(array) for name, array in made.items()} | {"prompts6": [tensor(p) for p in prompts]}


INPUTS = make_inputs()


def pad(prompts):
    mask = torch.zeros(len(prompts), max(map(len, prompts)), dtype=torch.bool)
    tokens = torch.full((*mask.shape, prompts[0].shape[-1]), torch.nan, dtype=torch.float64)  # padding must not be read
    for i, prompt in enumerate(prompts):
        tokens[i, : len(prompt)], mask[i, : len(prompt)] = prompt, True
    return tokens, mask


def entropy_of_rows(z, key):
    _, order, treatment = key.split(".", 2) if "S_0.5" not in key else ("", "S_0.5", key.split(".")[-1])
    return F.matrix_entropy(z, float(order.removeprefix("S_")), rows=ROWS[treatment])


def compute_matrix(z, key):
    whole = torch.ones(1, len(z), dtype=torch.bool)
    if key.startswith("paper.S_"):
        return entropy_of_rows(z, key)
    return {
        "paper.exp_S_1.raw_gram": lambda: F.matrix_entropy(z).exp(),
        "paper.effective_rank.roy_vetterli.raw": lambda: F.effective_rank(z),
        "paper.effective_rank.roy_vetterli.centred_unit_rows": lambda: F.effective_rank(z, rows="centered_unit"),
        "paper.curvature.rad": lambda: F.curvature(z[None], whole),
        "paper.curvature.deg": lambda: F.curvature(z[None], whole).rad2deg(),
        "paper.curvature.on_centred_unit_rows.rad": lambda: F.curvature(F.treat_rows(z, "centered_unit")[None], whole),
    }[key]()


def compute_views(views, key):
    a, b = views[:, 0], views[:, 1]
    alpha = 2 if "alpha2" in key else 1
    if key.startswith("paper.dime"):
        if key.endswith("exact_all_permutations"):
            return F.dime(a, b, alpha=alpha, permutations=list(itertools.permutations(range(len(a)))))
        return F.dime(a, b, alpha=alpha, permutations=10, seed=7)
    if key.startswith("paper.joint_entropy"):
        return F.joint_entropy(a, b, alpha)
    return {
        "paper.lidar.exp_entropy(delta=1e-4)": lambda: F.lidar(views),
        "paper.lidar.entropy(delta=1e-4)": lambda: F.lidar(views).log(),
        "paper.infonce.cosine.A_to_B.t0.1": lambda: F.infonce(a, b, direction="a_to_b"),
        "paper.infonce.cosine.B_to_A.t0.1": lambda: F.infonce(a, b, direction="b_to_a"),
        "paper.infonce.cosine.symmetric.t0.1": lambda: F.infonce(a, b),
    }[key]()


def compute_prompts(prompts, key):
    tokens, mask = pad(prompts)
    if key == "paper.curvature.mean_over_prompts.rad":
        return F.curvature(tokens, mask).mean()
    rows = ROWS[key.rsplit(".", 1)[1]]
    if "prompt_entropy" in key:
        return F.prompt_entropy(tokens, mask, rows=rows).mean()
    return F.matrix_entropy(F.pool(tokens, mask), 2 if "S_2" in key else 1, rows=rows)


def compute(name, key):
    if name.startswith("Z"):
        return compute_matrix(INPUTS[name], key)
    return compute_views(INPUTS[name], key) if name.startswith("views") else compute_prompts(INPUTS[name], key)


CASES = [(name, key) for name in INPUTS for key in VALUES[name] if key != "perms"]


def test_no_golden_value_is_left_out():
    assert len(CASES) == sum(len(VALUES[name]) for name in VALUES if name != "closed_form") == 93


@pytest.mark.parametrize(("name", "key"), CASES)
def test_golden_value(name, key):
    assert float(compute(name, key)) == pytest.approx(VALUES[name][key], abs=1e-9, rel=1e-9)


def test_closed_forms():
    closed = VALUES["closed_form"]
    path = lambda rows: torch.tensor([rows], dtype=torch.float64)  # noqa: E731
    turn = lambda rows: float(F.curvature(path(rows), torch.ones(1, len(rows), dtype=torch.bool)))  # noqa: E731
    got = {
        "S_alpha(I_n) = log n": float(F.matrix_entropy(torch.eye(8, dtype=torch.float64), 3)),
        "S(rank one)": float(F.matrix_entropy(torch.outer(torch.arange(1.0, 6), torch.arange(2.0, 9)).double())),
        "curvature straight line": turn([[0.0, 0], [1, 2], [2, 4], [5, 10]]),
        "curvature right angle zigzag [[0,0],[1,0],[1,1],[2,1]]": turn([[0.0, 0], [1, 0], [1, 1], [2, 1]]),
        "curvature reversal [[0],[1],[0]] signed": turn([[0.0], [1], [0]]),
        "infonce perfectly collapsed (all equal), N=12 -> log 12": float(
            F.infonce(torch.ones(12, 3).double(), torch.ones(12, 3).double())
        ),
    }
    for key, value in got.items():
        assert value == pytest.approx(next(v for k, v in closed.items() if k.startswith(key)), abs=1e-9)
    assert len(got) == len(closed)
    assert got["S_alpha(I_n) = log n"] == pytest.approx(math.log(8))

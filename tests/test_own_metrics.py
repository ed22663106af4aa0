"""A metric of one's own is known by what it computes: two of one name are never taken for each other."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import layerwise
from layerwise.core.errors import InputError, RunError
from layerwise.metrics.base import Metric
from layerwise.metrics.code_hash import code_hash
from layerwise.metrics.readings import mean_over_prompts
from layerwise.metrics.scores import mean_score


def longest(tokens, mask):
    return tokens.norm(dim=-1).masked_fill(~mask, 0).amax(dim=-1)


def shortest(tokens, mask):
    return tokens.norm(dim=-1).masked_fill(~mask, float("inf")).amin(dim=-1)


def own(function, score=None):
    return Metric(
        "extreme_norm", "scale", "longer", mean_over_prompts("extreme", function), score or mean_score(), "own"
    )


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda tokens, mask: tokens.norm(dim=-1), r"shape \(\d+, \d+\)"),
        (lambda tokens, mask: tokens.sum(), r"shape \(\)"),
        (lambda tokens, mask: 1.0, "a float"),
    ],
)
def test_a_metric_of_a_wrong_shape_is_named_with_the_shape_it_needs(function, found, tiny_llama, word_texts):
    wanted = rf"the function of extreme must return a tensor of shape \(\d+,\), one number per prompt .* not {found}"
    with pytest.raises(InputError, match=wanted):
        layerwise.scan(tiny_llama, word_texts, metrics=[own(function)])


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (layerwise.spectrum_score(lambda values: values), r"one number, a scalar tensor, not shape \(\d+,\)"),
        (lambda kept, rows: 0.5, "its score must return an Estimate, not a float"),
    ],
)
def test_a_score_that_is_no_number_is_named_by_its_metric(score, wanted, tiny_llama, word_texts):
    metric = Metric("whole_spectrum", "geometry", "more", layerwise.pooled_rows, score, "own")
    with pytest.raises(InputError, match=f"^metric whole_spectrum: .*{wanted}"):
        layerwise.scan(tiny_llama, word_texts, metrics=[metric])


def test_a_metric_that_was_changed_under_its_name_does_not_go_on_with_the_old_numbers(tiny_llama, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, metrics=[own(longest)], out=tmp_path / "run")
    layerwise.scan(tiny_llama, word_texts, metrics=[own(longest)], out=tmp_path / "run")
    with pytest.raises(RunError, match="own_metrics"):
        layerwise.scan(tiny_llama, word_texts, metrics=[own(shortest)], out=tmp_path / "run")


def scaled(factor):
    return lambda tokens, mask: factor * longest(tokens, mask)


def holding(thing):
    return lambda tokens: thing


SCALE = 1.0


def scaled_by_a_global(x):
    return SCALE * x


def helper(x):
    return x + 1


def calls_helper(x):
    return helper(x)


def with_set(x):
    return x in {"a", "b", "c"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (longest, shortest),
        (scaled(2), scaled(3)),
        (partial(longest, mask=1), partial(longest, mask=2)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, k=1: x * k, lambda x, k=2: x * k),
        (lambda x: x.exp(), lambda x: x.log()),
        ([torch.tensor([1.0])], [torch.tensor([2.0])]),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        ([[1, 2], [3]], [[1], [2, 3]]),
        (holding(np.arange(3)), holding(np.arange(1, 4))),
        (holding(torch.nn.Linear(2, 2)), holding(torch.nn.Linear(2, 2))),
    ],
)  # fmt: skip
def test_what_computes_something_else_has_another_hash(one, other):
    assert code_hash(one) != code_hash(other)
    assert code_hash(one) == code_hash(one)


def test_a_helper_in_the_same_module_counts(monkeypatch):
    before = code_hash(calls_helper)
    monkeypatch.setitem(globals(), "helper", lambda x: x + 5)
    globals()["helper"].__module__ = __name__
    assert code_hash(calls_helper) != before


def test_a_number_in_the_module_counts(monkeypatch):
    before = code_hash(scaled_by_a_global)
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    assert code_hash(scaled_by_a_global) != before


def test_functions_that_call_each_other_end():
    def ping(n):
        return pong(n - 1) if n else 0

    def pong(n):
        return ping(n - 1) if n else 1

    assert code_hash(ping) != code_hash(pong)


IN_ANOTHER_PROCESS = """
import sys
sys.path.insert(0, sys.argv[1])
from test_own_metrics import code_hash, longest, own, scaled, with_set
print(code_hash(with_set, longest, own(scaled(2))))
"""


def test_the_hash_is_the_same_in_every_process():
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(Path(__file__).parent)]
    seen = {subprocess.check_output(command, text=True) for _ in range(2)}
    assert seen == {code_hash(with_set, longest, own(scaled(2))) + "\n"}

"""A metric of one's own is known by what it computes: two of one name are never taken for each other."""

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from places import TESTS

import layerwise
from layerwise.core.errors import InputError, RunError
from layerwise.metrics.base import Metric
from layerwise.metrics.code_hash import code_hash, code_identity, library_of
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


@dataclass
class Settings:
    scale: float = 1.0


class Constants:
    scale = 1.0

    @staticmethod
    def apply(x):
        return x * Constants.scale


class Caller:
    __slots__ = ("__scale",)

    def __init__(self, scale):
        self.__scale = scale

    def __call__(self, x):
        return x * self.__scale


NAMESPACE, OBJECT, NUMPY, RANGE = SimpleNamespace(scale=1.0), Settings(), np.float32(1), range(3)
OTHER = ModuleType("other_module_of_the_user")
sys.modules[OTHER.__name__] = OTHER


def in_other_module(body):
    exec(compile(body, "other.py", "exec"), OTHER.__dict__)


in_other_module("SCALE = 1.0\ndef scaled(x): return x * SCALE\ndef unused(x): return x")
imported = OTHER.scaled


def nested(x):
    def inner(y):
        return y * SCALE

    return inner(x)


def imports(x):
    from other_module_of_the_user import scaled

    return scaled(x)


def given(module, x):
    return module.SCALE * x


# What a metric may use, and how it is changed.
USES = {
    "a global in a lambda": (lambda x: (lambda y: y * SCALE)(x), "SCALE", 2.0),
    "a global in a comprehension": (lambda x: [y * SCALE for y in x], "SCALE", 2.0),
    "a global in a generator": (lambda x: sum(y * SCALE for y in x), "SCALE", 2.0),
    "a global in a nested function": (nested, "SCALE", 2.0),
    "a helper in a lambda": (lambda x: (lambda y: helper(y))(x), "helper", lambda x: x + 7),
    "a namespace": (lambda x: x * NAMESPACE.scale, "NAMESPACE", SimpleNamespace(scale=2.0)),
    "an object": (lambda x: x * OBJECT.scale, "OBJECT", Settings(2.0)),
    "a class": (lambda x: Constants.apply(x), "Constants", type("Constants", (Constants,), {"scale": 2.0})),
    "a number of numpy": (lambda x: x * NUMPY, "NUMPY", np.float32(2)),
    "a range": (lambda x: x[RANGE], "RANGE", range(4)),
}


@pytest.mark.parametrize("name", USES)
def test_what_a_metric_uses_counts(name, monkeypatch):
    function, changed, value = USES[name]
    before = code_identity(function)
    assert code_identity(function) == before and not before.startswith("unknown")
    monkeypatch.setitem(globals(), changed, value)
    assert code_identity(function) != before


@pytest.mark.parametrize(
    "function", [lambda x: OTHER.scaled(x), lambda x: imported(x), imports, lambda x: given(OTHER, x)]
)
def test_a_function_of_another_module_of_the_user_counts(function):
    in_other_module("SCALE = 1.0")
    before = code_identity(function)
    in_other_module("SCALE = 2.0")
    assert code_identity(function) != before and not before.startswith("unknown")


def test_attributes_that_change_in_place_count(monkeypatch):
    caller = Caller(2.0)
    assert code_identity(caller) == code_identity(Caller(2.0)) != code_identity(Caller(3.0))
    for owner, function in (
        (Constants, lambda x: Constants.apply(x)),
        (NAMESPACE, lambda x: x * NAMESPACE.scale),
        (OBJECT, lambda x: OBJECT),
    ):
        before = code_identity(function)
        with monkeypatch.context() as patched:
            patched.setattr(owner, "scale", 2.0)
            assert code_identity(function) != before
        assert code_identity(function) == before


def test_circles_and_deep_values_end():
    circle = [1]
    circle.append(circle)
    two = [2]
    two.append(two)

    def default(x, held=circle):
        return held

    def other(x, held=two):
        return held

    assert code_identity(default) == code_identity(default) != code_identity(other)
    deep = []
    for _ in range(10**5):
        deep = [deep]
    assert code_identity(deep) == "unknown: it uses values that are nested too deeply"


def reads_a_file(x):
    return open("scale.txt").read()  # noqa: SIM115


GENERATOR = np.random.default_rng(0)


def unseen_generator(tokens, mask):
    return GENERATOR.normal() * longest(tokens, mask)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (unseen_generator, "an object of numpy.random._generator.Generator, whose content"),
        (reads_a_file, r"open\(\), which may give something else"),
        (lambda x: eval("x + 1"), r"eval\(\), which may give something else"),
        (holding(iter([1])), "an object of builtins.list_iterator"),
        (holding(torch.eye(2).to_sparse()), "an object of torch.Tensor"),
    ],
)
def test_what_cannot_be_seen_is_named(function, reason):
    assert re.match(f"unknown: it uses {reason}", code_identity(function))
    assert code_hash(function) == code_hash(function)


def test_libraries_count_by_their_version(monkeypatch):
    assert not code_identity(lambda x: torch.nn.functional.softmax(np.exp(x)), torch.exp, np.mean, len).startswith(
        "unk"
    )
    library_of.cache_clear()
    before = code_identity(np.mean)
    library_of.cache_clear()
    monkeypatch.setattr("layerwise.metrics.code_hash.version", lambda name: "0.0")
    assert code_identity(np.mean) != before
    library_of.cache_clear()


def test_a_run_with_a_metric_that_cannot_be_seen_is_not_used_again(tiny_llama, word_texts, tmp_path):
    options = {"metrics": [own(unseen_generator)], "out": tmp_path / "run"}
    layerwise.scan(tiny_llama, word_texts, **options)
    with pytest.raises(
        RunError, match="is not used again: the metric 'extreme_norm' may have .*Generator.*another folder"
    ):
        layerwise.scan(tiny_llama, word_texts, **options)


def test_functions_that_call_each_other_end():
    def ping(n):
        return pong(n - 1) if n else 0

    def pong(n):
        return ping(n - 1) if n else 1

    assert code_hash(ping) != code_hash(pong)


IN_ANOTHER_PROCESS = """
import sys
sys.path[:0] = sys.argv[1:]
from test_own_metrics import *
print(code_hash(with_set, longest, own(scaled(2)), *[use[0] for use in USES.values()]))
"""


def test_the_hash_is_the_same_in_every_process():
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(Path(__file__).parent), str(TESTS)]
    seen = {subprocess.check_output(command, text=True) for _ in range(2)}
    assert seen == {code_hash(with_set, longest, own(scaled(2)), *[use[0] for use in USES.values()]) + "\n"}

"""Statistics: tests that hold their level, intervals that cover, and readings that are what their metric says."""

import csv
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

import layerwise
from layerwise.metrics.base import Metric
from layerwise.metrics.catalog import CATALOG
from layerwise.metrics.readings import mean_over_prompts, pooled_rows
from layerwise.metrics.scores import mean_of, of_spectrum
from layerwise.sweep.plan import ScanPlan

METRICS = {metric.name: metric for metric in CATALOG}

# ---- readings


def longest(name: str, reading: str) -> Metric:
    """The longest token of a prompt, kept under a reading's name of the user's choice."""
    function = mean_over_prompts(reading, lambda t, m: (t.norm(dim=-1) * m).amax(dim=-1))
    return Metric(name, "scale", "a longer longest token", function, mean_of(), "this test")


def values(table, metric):
    return [s.value for s in table.where(metric=metric, readout="raw")]


@pytest.mark.parametrize("built_in", ["curvature", "mean_norm", "prompt_entropy"])
def test_a_users_reading_named_like_a_built_in_one_leaves_that_alone(tiny_llama, word_texts, built_in):
    alone = layerwise.scan(tiny_llama, word_texts, metrics=[built_in])
    mine = layerwise.scan(tiny_llama, word_texts, metrics=[longest("longest_token", "longest_token")])
    for order in (1, -1):
        both = layerwise.scan(tiny_llama, word_texts, metrics=[built_in, longest("longest_token", built_in)][::order])
        assert values(both, built_in) == values(alone, built_in)
        assert values(both, "longest_token") == values(mine, "longest_token")


def test_two_own_metrics_with_readings_of_one_name_are_kept_apart(tiny_llama, word_texts):
    def shortest(t, m):
        return t.norm(dim=-1).masked_fill(~m, math.inf).amin(dim=-1)

    short = Metric("short", "scale", "longer", mean_over_prompts("token", shortest), mean_of(), "this test")
    table = layerwise.scan(tiny_llama, word_texts, metrics=[longest("long", "token"), short])
    assert all(a > b for a, b in zip(values(table, "long"), values(table, "short"), strict=True))


def test_prompt_values_of_an_own_metric_stand_under_its_own_name(tiny_llama, word_texts, tmp_path):
    mine = longest("longest_token", "curvature")
    layerwise.scan(tiny_llama, word_texts, metrics=["curvature", mine], out=tmp_path / "run", keep_prompts="all")
    own = layerwise.difference(tmp_path / "run", "longest_token", 1, 2)
    alone = tmp_path / "alone"
    layerwise.scan(tiny_llama, word_texts, metrics=["curvature"], out=alone, keep_prompts="all")
    assert layerwise.difference(tmp_path / "run", "curvature", 1, 2) == layerwise.difference(alone, "curvature", 1, 2)
    assert own.n > 1 and own != layerwise.difference(alone, "curvature", 1, 2)


def test_built_in_readings_keep_their_keys_and_are_shared():
    mine = Metric("mine", "geometry", "more", pooled_rows, of_spectrum(lambda v: v.sum()), "this test")
    plan = ScanPlan((*CATALOG, mine), (4,), depth=4, has_norm=False)
    keys = {m.key(reading) for m in plan.measurements(4) for reading in m.readings}
    names = ["curvature/raw", "mean_norm/raw", "prompt_entropy/raw"]
    pooled = ["mean_unit_row", "pooled_rows", "row_sample", "view_pairs", "view_sample", "view_scatter"]
    assert keys == {f"004|raw|all|-|{n}" for n in names} | {f"004|raw|all|mean|{n}" for n in pooled}

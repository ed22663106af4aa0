"""Statistics: tests that hold their level, intervals that cover, and readings that are what their metric says."""

import csv
import importlib.util
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_runs import eval_table, scan_table
from places import ROOT

import layerwise
from layerwise.core.errors import InputError
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.base import Metric
from layerwise.metrics.catalog import CATALOG
from layerwise.metrics.intervals import TOO_NARROW, compute_influences, interval, jackknife
from layerwise.metrics.leave_one_out import entropy_leave_one_out, leave_one_out, rank_leave_one_out
from layerwise.metrics.ops.spectrum import effective_rank, matrix_entropy
from layerwise.metrics.readings import mean_over_prompts, pooled_rows
from layerwise.metrics.scores import mean_score, spectrum_score
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.report.correlations import correlation, surrogates
from layerwise.verbs.scan.plan import ScanPlan

METRICS = {metric.name: metric for metric in CATALOG}

# ---- readings


def longest(name: str, reading: str) -> Metric:
    """The longest token of a prompt, kept under a reading's name of the user's choice."""
    function = mean_over_prompts(reading, lambda t, m: (t.norm(dim=-1) * m).amax(dim=-1))
    return Metric(name, "scale", "a longer longest token", function, mean_score(), "this test")


def values(table, metric):
    return [s.value for s in table.where(metric=metric, norm="raw")]


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

    short = Metric("short", "scale", "longer", mean_over_prompts("token", shortest), mean_score(), "this test")
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
    mine = Metric("mine", "geometry", "more", pooled_rows, spectrum_score(lambda v: v.sum()), "this test")
    plan = ScanPlan((*CATALOG, mine), (4,), depth=4, has_norm=False)
    keys = {m.key(reading) for m in plan.measurements(4) for reading in m.readings}
    names = ["curvature/raw", "mean_norm/raw", "prompt_entropy/raw"]
    pooled = ["mean_unit_row", "pooled_rows", "row_sample", "view_pairs", "view_sample", "view_scatter"]
    assert keys == {f"004|raw|all|-|{n}" for n in names} | {f"004|raw|all|mean|{n}" for n in pooled}


# ---- correlation


def level_study():
    return study("correlation/level.py")


def study(path):
    """A script of studies/ as a module."""
    found = ROOT / "studies" / path
    spec = importlib.util.spec_from_file_location(found.stem, found)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["walk", "linear", "quadratic, quiet", "bump"])
def test_independent_curves_are_called_related_as_often_as_the_level_says(kind):
    """200 pairs: 5 % plus four standard errors is 11 %; of walks and trends, circular shifts called 16 to 100 %."""
    assert level_study().rate("spearman", level_study().SHIPPED, kind, 19, 200) <= 0.11


def test_coupled_curves_are_found():
    assert level_study().rate("spearman", level_study().SHIPPED, "coupled walks", 31, 50) >= 0.8


def test_the_committed_table_holds_the_level_that_the_docs_claim():
    study_folder = ROOT / "studies" / "correlation"
    with (study_folder / "level.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["curves"] in level_study().NAMED]
    rates = [float(row["called_related"]) for row in rows]
    assert {row["measure"] for row in rows} == {"spearman", "kendall", "distance"} and len(rows) == 3 * 9 * 5
    assert 0.02 <= min(rates) and max(rates) <= 0.07
    assert min(float(row["called_related"]) for row in rows if int(row["layers"]) > 7) >= 0.03


def test_measures_are_those_of_scipy_with_ties():
    from scipy.stats import kendalltau, spearmanr

    random = np.random.default_rng(0)
    for n in (5, 13, 31):
        a, b = random.normal(size=(2, n)).round(1)
        assert correlation("spearman", a, b) == pytest.approx(spearmanr(a, b).statistic)
        assert correlation("kendall", a, b) == pytest.approx(kendalltau(a, b).statistic)


def test_surrogates_keep_the_mean_and_the_spectrum_of_the_mirrored_curve():
    a = np.random.default_rng(0).normal(size=11).cumsum()
    made = surrogates(np.random.default_rng(1), a, count=400)
    assert made.shape == (400, 11)
    assert made.mean() == pytest.approx(a.mean(), abs=0.1 * a.std())
    assert (made.var(axis=1) + (made.mean(axis=1) - a.mean()) ** 2).mean() == pytest.approx(a.var(), rel=0.1)


def rows_of(metric, curve, **more):
    given = dict(model="m", norm="raw", tokens="all", pooling="mean", rows="raw", n=5)
    return [LayerScore(layer=k, depth=k, metric=metric, value=v, **(given | more)) for k, v in enumerate(curve)]


def test_metrics_go_with_scores_of_their_own_pooling_and_every_map_has_its_row():
    wave = [math.sin(k) for k in range(12)]
    pooled = (*rows_of("pooled", wave), *rows_of("pooled", wave, pooling="cls"))
    scan = LayerTable((*pooled, *rows_of("token", wave, pooling="-")))
    scored = LayerTable(
        (
            *rows_of("Task", wave, rows="-"),
            *rows_of("Task", wave[::-1], rows="-", pooling="cls"),
            *rows_of("Task", wave, rows="-", transform="whiten"),
        )
    )
    found = layerwise.lab.correlate(scan, scored)
    pairs = set(zip(found.metric, found.pooling, found.task_pooling, found["transform"], strict=True))
    assert pairs == {
        ("pooled", "mean", "mean", "none"),
        ("pooled", "mean", "mean", "whiten"),
        ("pooled", "cls", "cls", "none"),
        ("token", "-", "mean", "none"),
        ("token", "-", "mean", "whiten"),
        ("token", "-", "cls", "none"),
    }
    same = found[found.task_pooling == "mean"]
    assert same.spearman.tolist() == pytest.approx([1] * 4) and (same.spearman_bends_p < 0.05).all()


def test_curves_without_a_partner_are_named():
    scan = LayerTable((*rows_of("a", range(12)), *rows_of("a", range(12), tokens="no_first")))
    scored = LayerTable((*rows_of("Task", range(12), rows="-"), *rows_of("Task", range(12), rows="-", pooling="last")))
    with pytest.warns(UserWarning, match="2 curves have no match .*Task all last none, a raw no_first mean"):
        layerwise.lab.correlate(scan, scored)


def test_two_values_for_one_layer_are_refused_by_name():
    scan = LayerTable(tuple(rows_of("a", range(12))))
    two = (*rows_of("Task", range(12), rows="-"), *rows_of("Task", range(12), rows="-", dtype="bfloat16"))
    scored = LayerTable(two)
    with pytest.raises(InputError, match="Task all mean none has several values for one layer, which differ in dtype"):
        layerwise.lab.correlate(scan, scored)


def test_bends_are_tested_only_over_seven_or_more_evenly_spaced_layers():
    wave = [math.sin(k * k) for k in range(9)]
    few, gap = rows_of("few", wave[:6]), [s for s in rows_of("gap", wave) if s.layer != 4]
    scored = LayerTable(tuple(rows_of("Task", wave[::-1], rows="-")))
    with pytest.warns(UserWarning, match="only 6 layers"):
        found = layerwise.lab.correlate(LayerTable((*few, *gap, *rows_of("all", wave))), scored).set_index("metric")
    assert found.loc[["few", "gap"], "spearman_bends_p"].isna().all() and found.spearman.notna().all()
    assert 0 < found.loc["all", "spearman_bends_p"] < 1


def test_a_report_of_two_poolings_and_two_maps_is_made(tmp_path):
    run = scan_table()
    scores = eval_table()
    more = [replace(s, transform="whiten") for s in scores] + [replace(s, pooling="last") for s in scores]
    both = LayerTable((*scores.scores, *more), scores.run)
    page = layerwise.report([run, both], html=tmp_path / "p.html").read_text()
    assert "task_pooling" in page and "whiten" in page


# ---- intervals


def test_the_coverage_study_runs_and_covers_under_heavy_tails():
    """32 quick data sets with t3 lengths: 95 % minus four standard errors is 80 %; intervals once held 64-80 %."""
    coverage = study("intervals/coverage.py")
    case = coverage.Case(128, 48, (("dataset_entropy", "raw"), ("top_share", "raw")), "t3")
    entropy, top = (line.split(",") for line in coverage.lines(case, 32))
    assert len(entropy) == len(coverage.HEAD.split(",")) and entropy[:3] == ["dataset_entropy", "raw", "t3"]
    assert float(entropy[9]) >= 0.8 and float(entropy[10]) > 0.9
    assert float(top[10]) > 0.9  # noted: long rows carry one direction


@pytest.mark.parametrize("number", range(10))
def test_every_case_of_the_coverage_study_runs(number):
    coverage = study("intervals/coverage.py")
    assert len(coverage.CASES) == 10
    case = replace(coverage.CASES[number], n=min(600, coverage.CASES[number].n), width=8)
    assert [line.split(",")[0] for line in coverage.lines(case, 2)] == [name for name, _ in case.scores]


def test_intervals_reach_farther_on_the_side_of_the_long_tail():
    low, high = interval(3.0, 0.5, 50, skewness_term=0.1)
    plain = interval(3.0, 0.5, 50)
    assert plain[0] < low < 3.0 and high > plain[1]
    assert interval(3.0, 0.5, 50, skewness_term=-0.1) == pytest.approx((6 - high, 6 - low))
    assert interval(3.0, 0.5, 50, skewness_term=1e-5) == pytest.approx(plain, rel=1e-3)


def test_the_jackknife_of_a_mean_is_its_standard_error_and_skewness():
    x = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    found = jackknife((x.sum() - x) / (len(x) - 1))
    assert found.error == pytest.approx(float(x.std()) / len(x) ** 0.5)
    centred = x - x.mean()
    assert found.skewness_term == pytest.approx(float((centred**3).sum() / (centred**2).sum() ** 1.5) / 6)


@pytest.mark.parametrize(("n", "width"), [(40, 60), (60, 24), (30, 30)])
@pytest.mark.parametrize("rows", ["raw", "unit"])
def test_scores_without_each_row_are_those_of_the_other_rows(n, width, rows):
    z = torch.randn(n, 1, width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    z = z / torch.arange(1, width + 1) + 0.1
    z[0] = z[1]  # two rows alike
    sample = RowSample(width)
    sample.update(torch.arange(n), z)
    found = leave_one_out(compute_influences(sample, rows))
    others = [torch.cat([z[:i, 0], z[i + 1 :, 0]]) for i in range(n)]
    entropies = torch.stack([matrix_entropy(other, rows=rows) for other in others])
    ranks = torch.stack([effective_rank(other, rows=rows) for other in others])
    assert torch.allclose(entropy_leave_one_out(found), entropies, atol=1e-5)
    assert torch.allclose(rank_leave_one_out(found), ranks, rtol=1e-4)


def test_rows_that_are_all_zero_or_alone_have_no_interval():
    for kept in (torch.zeros(5, 1, 3), torch.ones(1, 1, 3)):
        sample = RowSample(3)
        sample.update(torch.arange(len(kept)), kept.double())
        for metric in ("dataset_entropy", "effective_rank", "participation"):
            source = METRICS[metric].interval_source
            assert not source.uncertainty(source.finish(sample, "raw")).error > 0


def test_an_interval_that_simulations_found_too_narrow_says_so_in_its_row():
    sample, skew = RowSample(4), torch.randn(60, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    skew[7] *= 100
    sample.update(torch.arange(60), skew)
    for metric, noted in (("top_share", True), ("participation", True), ("effective_rank", False)):
        source = METRICS[metric].interval_source
        assert (TOO_NARROW in source.warning(source.finish(sample, "raw"))) == noted
        assert source.warning(source.finish(sample, "unit")) == ""

"""Metrics as data: what readings keep gives the same score as the pure function on everything at once."""

import math

import pytest
import torch
from matrices import normal

from layerwise import functional as F
from layerwise.core.errors import InputError
from layerwise.inputs.source import hash_id
from layerwise.metrics.base import Estimate, Metric
from layerwise.metrics.catalog import CATALOG
from layerwise.metrics.readings import LIDAR_VIEWS, LayerBatch, mean_over_prompts
from layerwise.metrics.scores import mean_score

N, T, D = 29, 5, 7
METRICS = {metric.name: metric for metric in CATALOG}
PERSPECTIVES = {"information", "geometry", "invariance", "scale"}


def stream(n=N, width=D, batch=11):
    """A layer's hidden states for n prompts with 16 views each, cut into batches."""
    tokens = normal(n, T, width) + 1
    mask = torch.arange(T)[None] < (2 + torch.arange(n) % (T - 1))[:, None]
    original = F.pool(tokens, mask)
    views = original[:, None] + 0.3 * normal(n, LIDAR_VIEWS, width, seed=1)
    keys = torch.tensor([hash_id(str(i)) for i in range(n)])
    whole = LayerBatch(keys, tokens, mask, torch.cat([original[:, None], views], dim=1))
    cut = lambda at: LayerBatch(keys[at], tokens[at], mask[at], whole.pooled[at])  # noqa: E731
    return whole, [cut(slice(i, i + batch)) for i in range(0, n, batch)]


def run(metric, rows, batches, width=D):
    """Two shards, merged: the whole life of a metric."""
    reading = metric.reading(rows)
    first, second = reading.make_accumulator(width), reading.make_accumulator(width)
    for i, batch in enumerate(batches):
        (first, second)[i % 2].update(*reading.read(batch))
    first.merge(second)
    return metric.score(reading.finish(first, rows), rows)


def at_once(name, rows, whole):
    """The same number by the pure function on all examples together."""
    rows_of, ordered = whole.pooled[:, 0], whole.pooled[whole.keys.argsort()]
    return {
        "prompt_entropy": lambda: F.prompt_entropy(whole.tokens, whole.mask, rows=rows).nanmean(),
        "prompt_entropy_normalized": lambda: F.normalized_prompt_entropy(whole.tokens, whole.mask, rows=rows).nanmean(),
        "dataset_entropy": lambda: F.matrix_entropy(rows_of, rows=rows),
        "effective_rank": lambda: F.effective_rank(rows_of, rows=rows),
        "participation": lambda: F.participation(rows_of, rows=rows),
        "curvature": lambda: F.curvature(whole.tokens, whole.mask).nanmean(),
        "intrinsic_dimension": lambda: F.intrinsic_dimension(rows_of),
        "anisotropy": lambda: F.anisotropy(rows_of),
        "top_share": lambda: F.top_share(rows_of, rows=rows),
        "mean_norm": lambda: F.mean_norm(whole.tokens, whole.mask).mean(),
        "infonce": lambda: F.infonce(ordered[:, 1], ordered[:, 2]),
        "dime": lambda: F.dime(ordered[:, 1], ordered[:, 2]),
        "lidar": lambda: F.lidar(whole.pooled[:, 1:]),
    }[name]()


@pytest.mark.parametrize("width", [D, N + 2], ids=["D x D", "rows"])
@pytest.mark.parametrize(("name", "rows"), [(m.name, rows) for m in CATALOG for rows in m.rows])
def test_the_kept_score_is_the_pure_function_of_everything(name, rows, width):
    whole, batches = stream(width=width)
    got = run(METRICS[name], rows, batches, width)
    assert got.value == pytest.approx(float(at_once(name, rows, whole)), rel=1e-7)
    assert 0 < got.n <= N


def test_block_metrics_average_full_blocks_in_the_order_of_hashed_ids():
    whole, batches = stream(n=600)
    ordered = whole.pooled[whole.keys.argsort()]
    expected = (F.infonce(*ordered[:256, 1:3].unbind(1)) + F.infonce(*ordered[256:512, 1:3].unbind(1))) / 2
    got = run(METRICS["infonce"], "raw", batches)
    assert got.value == pytest.approx(float(expected), rel=1e-9)
    assert got.n == 512


@pytest.mark.parametrize("metric", CATALOG, ids=lambda m: m.name)
def test_nothing_seen_gives_nan_and_n_zero(metric):
    for rows in metric.rows:
        reading = metric.reading(rows)
        got = metric.score(reading.finish(reading.make_accumulator(D), rows), rows)
        assert math.isnan(got.value) and got.n == 0


def test_prompts_without_a_value_are_counted_as_skipped():
    _, batches = stream()
    turns = run(METRICS["curvature"], "raw", batches)  # every fourth prompt has two tokens and no turn
    assert turns.skipped == len([i for i in range(N) if 2 + i % (T - 1) < 3])
    assert turns.n + turns.skipped == N


def test_equal_readings_are_kept_once():
    names = ("dataset_entropy", "effective_rank", "participation", "top_share")
    spectral = [METRICS[name].reading("raw") for name in names]
    assert len(set(spectral)) == 1
    assert METRICS["dataset_entropy"].reading("centered") == spectral[0]
    assert METRICS["dataset_entropy"].reading("unit") != spectral[0]
    assert METRICS["dataset_entropy"].reading("centered_unit") == METRICS["intrinsic_dimension"].reading("raw")
    assert METRICS["infonce"].reading("raw") == METRICS["dime"].reading("raw")
    assert METRICS["prompt_entropy"].reading("unit") == METRICS["prompt_entropy_normalized"].reading("unit")


def test_a_users_own_metric_works_without_registration():
    spread = Metric(
        name="token_spread",
        perspective="geometry",
        larger_means="tokens differ more",
        reading=mean_over_prompts("token_spread", lambda tokens, mask: tokens.std(dim=1).mean(dim=-1)),
        score=mean_score(),
        cite="this test",
    )
    whole, batches = stream()
    assert run(spread, "raw", batches).value == pytest.approx(float(whole.tokens.std(dim=1).mean()))
    assert isinstance(run(spread, "raw", batches), Estimate)


def test_the_catalog_tells_what_it_must():
    assert len({m.name for m in CATALOG}) == len(CATALOG)
    for metric in CATALOG:
        assert metric.perspective in PERSPECTIVES and metric.larger_means and metric.cite


def test_a_metric_without_a_plain_name_is_refused():
    with pytest.raises(InputError, match="'my metric' must be a valid Python identifier"):
        Metric("my metric", "geometry", "x", CATALOG[0].reading, CATALOG[0].score, "x")

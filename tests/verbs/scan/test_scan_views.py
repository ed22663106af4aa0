"""scan with views, intervals and stress: the same numbers for any shards and order, and what they mean."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from families import DEPTH

import layerwise
from layerwise import functional as F
from layerwise.core.errors import InputError, RunError
from layerwise.inputs.perturbations.changes import STRESS_SCALES, Stress
from layerwise.inputs.perturbations.text import make_view
from layerwise.inputs.perturbations.tokens import Vocabulary, apply_stress
from layerwise.inputs.source import hash_id
from layerwise.inputs.text import demo_texts
from layerwise.metrics.intervals import group_jackknife, interval
from layerwise.verbs.compare.paired import paired_difference

VIEWED = "infonce,dime,lidar"
KEYS = ["layer", "norm", "tokens", "pooling", "rows", "metric"]


@pytest.fixture(scope="module")
def texts():
    """Words that the tiny tokenizer does not know become <unk> when edited; enough of them stay apart."""
    return [" ".join(f"w{(i * j + 3 * i + j) % 89}" for j in range(8)) + f" {'w' * 5}{i}" for i in range(40)]


def values(table, **where):
    return table.where(**where).to_pandas().set_index(KEYS).value.sort_index()


def test_shards_and_order_do_not_matter_with_views(tiny_llama, texts):
    alone = {"metrics": VIEWED, "batch_tokens": 1}
    whole = values(layerwise.scan(tiny_llama, texts, **alone))
    for other in (
        layerwise.scan(tiny_llama, texts, shard_size=8, **alone),
        layerwise.scan(tiny_llama, texts[::-1], **alone),
        layerwise.scan(tiny_llama, [*texts[7:], *texts[:7]], shard_size=11, **alone),
    ):
        pd.testing.assert_series_equal(whole, values(other), rtol=1e-8)


def test_batches_do_not_matter_with_views(tiny_llama, texts):
    one = values(layerwise.scan(tiny_llama, texts, metrics=VIEWED, batch_tokens=1))
    many = values(layerwise.scan(tiny_llama, texts, metrics=VIEWED, batch_tokens=4096))
    pd.testing.assert_series_equal(one, many, rtol=1e-3)


def test_block_metrics_are_a_naive_two_pass_computation_on_the_same_vectors(tiny_llama, texts):
    scanned = layerwise.scan(tiny_llama, texts, metrics=VIEWED, batch_tokens=1).where(layer=2)
    examples = sorted(layerwise.texts(texts), key=lambda e: e.key)
    made = [make_view(e.text, 0, e.id, v) for e in examples for v in range(1, 17)]
    rows = np.stack(layerwise.embed(tiny_llama, made, layers="2", batch_tokens=1).layer_2).reshape(len(texts), 16, -1)
    rows = torch.from_numpy(rows).double()
    value = {s.metric: s.value for s in scanned}
    assert value["infonce"] == pytest.approx(float(F.infonce(rows[:, 0], rows[:, 1])), rel=1e-8)
    assert value["dime"] == pytest.approx(float(F.dime(rows[:, 0], rows[:, 1])), abs=1e-8)
    assert value["lidar"] == pytest.approx(float(F.lidar(rows)), rel=1e-8)


def test_views_are_made_only_for_metrics_that_need_them(tiny_llama, texts):
    forwards = {m: layerwise.plan(tiny_llama, texts, metrics=m).forwards for m in ("fast", "infonce", "all")}
    assert forwards == {"fast": 40, "infonce": 3 * 40, "all": 17 * 40}  # and not 21


def test_the_seed_and_the_strength_of_views_matter_and_are_recorded(tiny_llama, texts):
    base = layerwise.scan(tiny_llama, texts, metrics="infonce", layers="1")
    for change in ({"seed": 1}, {"view_strength": 0.6}):
        other = layerwise.scan(tiny_llama, texts, metrics="infonce", layers="1", **change)
        assert other.scores[0].value != base.scores[0].value
        name, given = next(iter(change.items()))
        assert other.run["plan"][name] == given


def test_every_row_has_an_interval_around_its_value(tiny_llama):
    texts = [" ".join(f"w{(i * j * j + 5 * i + j) % 89}" for j in range(3 + i % 9)) for i in range(600)]
    asked = {"metrics": "all", "rows": "raw,centered,centered_unit", "layers": "1,2"}
    table = layerwise.scan(tiny_llama, texts, **asked).to_pandas()
    assert (table.ci_low < table.value).all() and (table.value < table.ci_high).all()
    # The intervals do not depend on the sharding.
    again = layerwise.scan(tiny_llama, texts, shard_size=100, **asked).to_pandas()
    assert again.ci_low.to_numpy() == pytest.approx(table.ci_low.to_numpy(), rel=1e-3, abs=1e-6)


def test_one_block_says_nothing_of_the_spread(tiny_llama, texts):
    score = layerwise.scan(tiny_llama, texts, metrics="infonce", layers="1").scores[0]
    assert score.n == 40 and math.isnan(score.ci_low)


def test_the_interval_is_students():
    from scipy import stats

    expected = stats.t.interval(0.95, 7, loc=3.0, scale=0.5)
    assert interval(3.0, 0.5, 7) == pytest.approx(expected)


def test_the_group_jackknife_of_a_mean_is_its_standard_error():
    x = torch.randn(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert group_jackknife(x, lambda kept: kept.mean(), 200) == pytest.approx(float(x.std() / 2000**0.5), rel=0.15)


def test_the_spectral_error_is_the_plain_jackknifes():
    """One eigendecomposition against leaving out every row in turn."""
    from layerwise.metrics.accumulators.row_sample import RowSample
    from layerwise.metrics.catalog import CATALOG

    metric = next(m for m in CATALOG if m.name == "dataset_entropy")
    for n, width in ((150, 9), (60, 90)):  # both sides of the Gram matrix
        rows = torch.randn(n, 1, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        rows = rows / torch.arange(1, width + 1) + 0.2
        sample = RowSample(width)
        sample.update(torch.arange(n), rows)
        mine = metric.interval_source.uncertainty(metric.interval_source.finish(sample, "raw")).error
        assert mine == pytest.approx(group_jackknife(rows[:, 0], F.matrix_entropy, n), rel=0.15)


def test_two_layers_are_told_apart_prompt_by_prompt(tiny_llama, texts, tmp_path):
    from scipy import stats

    layerwise.scan(tiny_llama, texts, out=tmp_path)
    found = layerwise.difference(tmp_path, "prompt_entropy", 0, 3)
    prompts = pd.read_parquet(tmp_path / "prompts")
    chosen = prompts[(prompts.metric == "prompt_entropy") & (prompts.norm == "raw")]
    a, b = (chosen[chosen.layer == k].set_index("id").value for k in (0, 3))
    test = stats.ttest_rel(b, a.reindex(b.index))
    assert found.p == pytest.approx(test.pvalue, rel=1e-6)
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(test.confidence_interval()))
    assert found.n == len(texts) and found.is_significant == (found.p < 0.05)
    same = layerwise.difference(tmp_path, "prompt_entropy", 2, 2)
    assert not same.is_significant and "no significant difference" in str(same)
    with pytest.raises(InputError, match="no values of single texts for .*lidar"):
        layerwise.difference(tmp_path, "lidar", 0, 1)
    with pytest.raises(RunError, match="no finished run"):
        layerwise.difference(tmp_path / "prompts", "curvature", 0, 1)
    with pytest.raises(InputError, match="at least 2"):
        paired_difference(np.array([1.0]))


VOCABULARY = Vocabulary(97, frozenset({0, 1, 2}))
IDS = (1, *range(10, 30), 2)


@pytest.mark.parametrize("kind", [kind for kind in STRESS_SCALES if STRESS_SCALES[kind].unit == "share"])
def test_a_share_of_the_tokens_is_replaced_and_special_ones_stay(kind):
    changed = lambda level: apply_stress(IDS, kind, level, VOCABULARY, 0, "id")  # noqa: E731
    assert changed(0.0) == IDS
    for level in (0.25, 1.0):
        assert changed(level)[0] == 1 and changed(level)[-1] == 2 and len(changed(level)) == len(IDS)
        assert not {0, 1, 2} & set(changed(level)[1:-1])
    touched = [{i for i, (a, b) in enumerate(zip(IDS, changed(p), strict=True)) if a != b} for p in (0.25, 0.5, 1.0)]
    assert touched[0] < touched[1] <= touched[2], "a higher level touches the same places and more"
    many = [apply_stress(IDS, kind, 0.25, VOCABULARY, 0, str(i)) for i in range(300)]
    share = np.mean([[a != b for a, b in zip(IDS[1:-1], ids[1:-1], strict=True)] for ids in many])
    assert share == pytest.approx(0.25 * (0.95 if kind != "random" else 1), abs=0.03)


def test_the_two_readings_of_repetition():
    one = apply_stress(IDS, "repeat_one", 1.0, VOCABULARY, 0, "id")[1:-1]
    any_ = apply_stress(IDS, "repeat_any", 1.0, VOCABULARY, 0, "id")[1:-1]
    assert len(set(one)) == 1 and set(one) < set(IDS)
    assert len(set(any_)) > 5 and set(any_) <= set(IDS)


def test_lengths():
    assert apply_stress(IDS, "length", 7, VOCABULARY, 0, "id") == IDS[:7]
    drawn = apply_stress(IDS, "random_length", 50, VOCABULARY, 0, "id")
    assert len(drawn) == 50 and drawn[0] == 1 and len(set(drawn)) > 20
    for kind, level in (("random", 1.5), ("length", 1), ("length", 2.5), ("nothing", 1)):
        with pytest.raises(InputError):
            Stress(kind, level)


def test_stress_gives_a_table_by_level(tiny_llama, word_texts, tmp_path):
    texts = word_texts
    table = layerwise.lab.stress(tiny_llama, texts, kind="repeat_one", levels=[0, 1], out=tmp_path)
    plain = layerwise.scan(tiny_llama, texts, metrics="prompt_entropy")
    untouched = table.where(metric="prompt_entropy", level=0.0).to_pandas()
    assert untouched.value.to_numpy() == pytest.approx(plain.to_pandas().value.to_numpy())
    all_one = table.where(metric="prompt_entropy", level=1.0, layer=0, norm="raw").scores[0]
    assert all_one.value == pytest.approx(0, abs=1e-5) and all_one.condition == "repeat_one"
    assert len(layerwise.LayerTable.load(tmp_path)) == len(table) == 2 * 2 * (DEPTH + 2)
    resumed = layerwise.lab.stress(tiny_llama, texts, kind="repeat_one", levels=[0, 1], out=tmp_path)
    pd.testing.assert_frame_equal(resumed.to_pandas(), table.to_pandas())


def test_a_length_curve_uses_texts_that_are_long_enough_for_every_level(tiny_llama, word_texts):
    table = layerwise.lab.stress(tiny_llama, word_texts, kind="length", levels=[4, 16], metrics="prompt_entropy")
    assert {s.n for s in table} == {sum(len(t.split()) >= 16 for t in word_texts)}
    with pytest.raises(InputError, match="the longest has 29 tokens"):
        layerwise.lab.stress(tiny_llama, word_texts, kind="length", levels=[100])
    longer = [text for text in word_texts if len(text.split()) >= 12]
    usual = layerwise.lab.stress(tiny_llama, longer, kind="length", metrics="prompt_entropy")
    assert {s.level for s in usual} == {16.0}, "of the usual levels, those that half of the texts reach"
    with pytest.raises(InputError, match="repeat_one, repeat_any"):
        layerwise.lab.stress(tiny_llama, word_texts, kind="repeat")


@pytest.mark.long
def test_heavier_views_align_worse_on_a_real_model(real_model):
    """What InfoNCE and DiME mean, on trained weights: more edits, higher loss, lower DiME beyond the embeddings."""
    texts = [text[:160] for text in demo_texts()]
    model = real_model("all-minilm-l6-v2")
    light, heavy = (layerwise.scan(model, texts, metrics="infonce,dime", view_strength=p) for p in (0.1, 0.5))
    for layer in range(1, 7):
        low, high = ({s.metric: s.value for s in t.where(layer=layer)} for t in (light, heavy))
        assert high["infonce"] > low["infonce"] and high["dime"] < low["dime"], layer


def test_ids_hash_the_same_in_accumulators_and_inputs():
    example = next(iter(layerwise.texts(["a text"])))
    assert example.key == hash_id(example.id)

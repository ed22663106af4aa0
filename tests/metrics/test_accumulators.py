"""Accumulators: empty is neutral, any split in any order is the whole, a state survives its journey."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matrices import normal

from layerwise.core.errors import InputError, MergeError
from layerwise.inputs.source import hash_id
from layerwise.metrics.accumulators.base import dump_states, parse_states
from layerwise.metrics.accumulators.class_scatter import ClassScatter
from layerwise.metrics.accumulators.frequent_directions import FrequentDirections
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.accumulators.running_mean import RunningMean
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.metrics.readings import spectrum_of_moment

N, D = 23, 5
ROWS = normal(N, D) + 3
VIEWS = normal(N, 3, D, seed=1)
KEYS = torch.tensor([hash_id(f"example {i}") for i in range(N)])

START = {
    "running_mean": partial(RunningMean, 2),
    "second_moment": partial(SecondMoment, D),
    "second_moment, never folded": partial(SecondMoment, N + D),
    "sketch, never shrunk": partial(FrequentDirections, D, N),
    "class_scatter": partial(ClassScatter, D, 3),
    "row_sample": partial(RowSample, D, 1, 7),
    "paired_rows": partial(RowSample, D, 2, 7),
}


def feed(kind, kept, examples):
    """Shows the given examples to an accumulator."""
    at = torch.as_tensor(examples, dtype=torch.long)
    if kind == "running_mean":
        kept.update(ROWS[at, :2])
    elif kind == "second_moment, never folded":
        kept.update(torch.cat([ROWS, normal(N, N, seed=2)], dim=1)[at])
    elif kind in ("second_moment", "sketch, never shrunk"):
        kept.update(ROWS[at])
    elif kind == "class_scatter":
        kept.update(VIEWS[at])
    else:
        kept.update(KEYS[at], VIEWS[at, : kept.views])
    return kept


def contents(kept):
    """What the accumulator knows, in a form that does not depend on how rows wait to be folded."""
    if isinstance(kept, SecondMoment):
        return [kept.total, *kept.moments()[1:]]
    if isinstance(kept, FrequentDirections):
        return [kept.count, *kept.moments()[1:]]
    if isinstance(kept, ClassScatter):
        return [*contents(kept.between), *contents(kept.within)]
    if isinstance(kept, RowSample):
        return [kept.seen, kept.skipped, kept.keys, kept.rows]
    return [kept.count, kept.mean, kept.squared_deviations, kept.skipped]


def same(one, other, tolerance=1e-12):
    for a, b in zip(contents(one), contents(other), strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", START)
@given(cuts=st.lists(st.integers(0, N), max_size=5), seed=st.integers(0, 999), through_disk=st.booleans())
def test_any_split_in_any_order_is_the_whole(kind, cuts, seed, through_disk):
    whole = feed(kind, START[kind](), range(N))
    rng = np.random.default_rng(seed)
    order = rng.permutation(N)
    shards = []
    for part in np.split(order, sorted(cuts)):
        shard = START[kind]()
        for batch in np.split(part, [len(part) // 2]):
            feed(kind, shard, batch)
        if through_disk:
            shard = type(shard).from_state(parse_states(dump_states({"shard": shard.to_state()}))["shard"])
        shards.append(shard)
    rng.shuffle(shards)
    merged = START[kind]()
    for shard in shards:
        merged.merge(shard)
    same(merged, whole)


@pytest.mark.parametrize("kind", START)
def test_empty_is_neutral_on_either_side(kind):
    whole = feed(kind, START[kind](), range(N))
    left, right = START[kind](), feed(kind, START[kind](), range(N))
    left.merge(whole)
    right.merge(START[kind]())
    same(left, whole)
    same(right, whole)


@pytest.mark.parametrize("kind", START)
def test_a_state_survives_the_round_trip_bit_by_bit(kind):
    for examples in ([], range(3), range(N)):
        state = feed(kind, START[kind](), examples).to_state()
        data = dump_states({"layer 3/raw": state, "empty": START[kind]().to_state()})
        back = parse_states(data)["layer 3/raw"]
        assert dict(back.settings) == dict(state.settings)
        assert all(torch.equal(back.tensors[name], tensor) for name, tensor in state.tensors.items())
        assert dump_states({"layer 3/raw": back, "empty": START[kind]().to_state()}) == data


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        (RunningMean(1), RunningMean(2), "width: 1 and 2"),
        (SecondMoment(5), SecondMoment(7), "width: 5 and 7"),
        (ClassScatter(5, 3), ClassScatter(5, 2), "views: 3 and 2"),
        (RowSample(5, 1, 7), RowSample(5, 1, 11), "size: 7 and 11"),
        (SecondMoment(5), RunningMean(5), "kind: 'second_moment' and 'running_mean'"),
    ],
)
def test_states_of_different_plans_refuse_to_merge_and_name_the_field(one, other, field):
    with pytest.raises(MergeError, match=field):
        one.merge(other)


def test_damaged_bytes_are_noticed():
    data = dump_states({"s": RunningMean(2).to_state()})
    for damaged in (data[:-1], data[:20], b"", b"{}" * 50):
        with pytest.raises(InputError, match="damaged"):
            parse_states(damaged)


def test_running_mean_and_spread_are_numpys():
    kept = feed("running_mean", START["running_mean"](), range(N))
    assert kept.mean.numpy() == pytest.approx(ROWS[:, :2].numpy().mean(axis=0))
    assert (kept.squared_deviations / kept.count).numpy() == pytest.approx(ROWS[:, :2].numpy().var(axis=0))


def test_undefined_values_are_skipped_and_counted_column_by_column():
    kept = RunningMean(2)
    kept.update(torch.tensor([[1.0, torch.nan], [3.0, 5.0], [torch.nan, torch.nan]]))
    assert kept.mean.tolist() == [2.0, 5.0]
    assert kept.count.tolist() == [2, 1]
    assert kept.skipped.tolist() == [1, 2]


@pytest.mark.parametrize("n", [2, D, D + 1, N])
def test_second_moment_is_numpys_covariance_whether_folded_or_not(n):
    kept = SecondMoment(D)
    for row in ROWS[:n]:
        kept.update(row[None])
    count, mean, scatter = kept.moments()
    assert count == n
    assert mean.numpy() == pytest.approx(ROWS[:n].numpy().mean(axis=0))
    assert scatter.numpy() == pytest.approx(np.cov(ROWS[:n].numpy().T, bias=True) * n)
    assert (kept.rows() is None) == (n > D)


def test_rows_with_nan_are_skipped_and_counted():
    rows = ROWS.clone()
    rows[3, 1] = torch.nan
    views = VIEWS.clone()
    views[3, 1, 1] = torch.nan
    moment, scatter, sample = SecondMoment(D), ClassScatter(D, 3), RowSample(D, 3, N)
    moment.update(rows)
    scatter.update(views)
    sample.update(KEYS, views)
    assert (moment.total, moment.skipped) == (scatter.between.total, scatter.between.skipped) == (N - 1, 1)
    assert (len(sample.keys), sample.skipped) == (N - 1, 1)


def test_the_sample_is_the_rows_of_the_smallest_hashes():
    sample = feed("row_sample", START["row_sample"](), range(N))
    order = KEYS.argsort()[:7]
    assert torch.equal(sample.keys, KEYS[order])
    assert torch.equal(sample.rows[:, 0], VIEWS[order, 0])
    assert sample.seen == N


def test_hashed_ids_are_the_same_on_every_machine():
    assert hash_id("example 0") == -4515144351489646037
    assert len({hash_id(str(i)) for i in range(10_000)}) == 10_000


def test_wrong_widths_are_refused():
    for kept, rows in ((SecondMoment(5), torch.zeros(2, 7)), (ClassScatter(5, 3), torch.zeros(2, 2, 5))):
        with pytest.raises(InputError, match="width|expected"):
            kept.update(rows)
    with pytest.raises(InputError, match="expected rows"):
        RowSample(5).update(torch.zeros(2, dtype=torch.int64), torch.zeros(2, 2, 5))


@given(st.data())
def test_a_state_from_disk_merges_to_the_same_bits_as_one_in_memory(data):
    """What makes a cluster, a crash and a resumed run give the hash of an undisturbed one."""
    kind = data.draw(st.sampled_from([*START]))
    cuts = sorted(data.draw(st.lists(st.integers(0, N), min_size=3, max_size=3)))
    parts = [list(range(a, b)) for a, b in zip([0, *cuts], [*cuts, N], strict=True)]
    batches = data.draw(st.integers(1, 4))

    def shard(part):
        kept = START[kind]()
        for at in range(0, len(part), batches):
            feed(kind, kept, part[at : at + batches])
        return kept

    def travelled(kept):
        return type(kept).from_state(parse_states(dump_states({"x": kept.to_state()}))["x"])

    stayed, came = shard(parts[0]), travelled(shard(parts[0]))
    for part in parts[1:]:
        stayed.merge(shard(part))
        came.merge(travelled(shard(part)))
        came = travelled(came)
    one, other = (dump_states({"x": kept.to_state()}) for kept in (stayed, came))
    assert one == other


def decaying(n, d, seed=0):
    """Rows whose spectrum decays like that of real layers, around a mean that is not zero."""
    return normal(n, d, seed=seed) * torch.arange(1, d + 1).double() ** -0.7 + 0.3


@pytest.mark.parametrize("size", [3, 8, 20])
@pytest.mark.parametrize("split", [1, 7])
def test_a_sketch_is_within_its_stated_bound_and_knows_the_trace(size, split):
    rows = decaying(400, 31)
    parts = []
    for part in torch.chunk(rows, split):
        parts.append(FrequentDirections(31, size))
        for batch in torch.split(part, 13):
            parts[-1].update(batch)
    sketch = parts[0]
    for other in parts[1:]:
        sketch.merge(other)
    truth = rows.mT @ rows
    apart = torch.linalg.eigvalsh(truth - sketch.sketch.mT @ sketch.sketch)
    assert float(apart[0]) > -1e-9 and float(apart[-1]) <= sketch.error_bound + 1e-9
    tail = torch.linalg.eigvalsh(truth).flip(0).cumsum(0)
    best = min(float(tail[-1] - tail[k - 1] if k else tail[-1]) / (size - k) for k in range(size))
    assert sketch.error_bound <= best + 1e-9, "the bound of the paper"
    count, mean, scatter = sketch.moments()
    assert (count, sketch.skipped) == (400, 0)
    torch.testing.assert_close(mean, rows.mean(dim=0))
    gram = scatter + count * torch.outer(mean, mean)
    assert float(gram.trace()) == pytest.approx(float(truth.trace()), rel=1e-12)
    values, wanted = torch.linalg.eigvalsh(gram), torch.linalg.eigvalsh(truth)
    assert float((values - wanted).abs().max()) <= sketch.error_bound
    for treatment in ("raw", "centered"):
        found = spectrum_of_moment(sketch, treatment)
        wanted = torch.linalg.eigvalsh(truth if treatment == "raw" else truth - count * torch.outer(mean, mean))
        stated = float(found.note.split(" accurate to ")[1].split(" ")[0])
        assert float((found.values.sort().values - wanted).abs().max()) <= 1.1 * stated * float(wanted.sum())
    assert FrequentDirections(31, size).note(0.0, 0.0) == ""


def test_float32_sums_are_within_their_stated_bound_and_take_half():
    rows, exact, single = decaying(3000, 31), SecondMoment(31), SecondMoment(31, "float32")
    for kept in (exact, single):
        for batch in torch.split(rows, 13):
            other = SecondMoment(31, kept.precision)
            other.update(batch)
            kept.merge(other)
    wanted, got = (torch.linalg.eigvalsh(kept.moments()[2]) for kept in (exact, single))
    squares, total = float((rows**2).sum()), float(wanted.sum())
    stated = float(single.note(squares, total).split(" accurate to ")[1].split(" ")[0])
    assert 0 < float((got - wanted).abs().max() / wanted.sum()) <= stated < 1e-4
    assert 2 * single.bytes_for(3000) == exact.bytes_for(3000)
    assert single.to_state().tensors["scatter"].dtype == torch.float32
    assert exact.note(squares, total) == ""


def test_a_settled_state_hands_no_rows_on_and_holds_the_same_sums():
    rows = decaying(300, 31)
    kept, few = SecondMoment(31), SecondMoment(31)
    kept.update(rows)
    few.update(rows[:20])
    before = kept.moments()
    kept.fold_buffer()
    few.fold_buffer()
    assert not len(kept.to_state().tensors["waiting"]) and len(few.rows()) == 20, "rows stay while all of them fit"
    for one, other in zip(before, kept.moments(), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other))


@pytest.mark.parametrize("kind", START)
@pytest.mark.parametrize("examples", [0, 1, N])
def test_memory_and_settings_are_known_without_writing_the_state(kind, examples):
    kept = feed(kind, START[kind](), range(examples))
    state = kept.to_state()
    assert kept.settings == state.settings
    counted = sum(tensor.nbytes for tensor in state.tensors.values())
    assert 0 <= counted - kept.nbytes <= 64, "a few counts of its own are numbers in memory"

"""probe: every layer's probes against their own libraries, a label planted in one layer, and what must not matter."""

import json
import math
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn
from transformers import AutoModel, AutoTokenizer, PretrainedConfig
from walks import WalkProcessor

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, NotFiniteError, RunError
from layerwise.inputs.labels import read_columns
from layerwise.inputs.source import Source
from layerwise.metrics.intervals import paired_share_interval, wilson_interval
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.probe import features
from layerwise.verbs.probe import run as probe_run
from layerwise.verbs.probe.command import closing_lines
from layerwise.verbs.probe.features import FeatureStore
from layerwise.verbs.probe.labelled import LabelTask, fifths, label_task, read_labelled
from layerwise.verbs.probe.probes import knn_probe, majority
from layerwise.verbs.probe.trained_probes import AttentionProbe, WeightedSumProbe, head_count

DEPTH, WIDTH = 3, 16

# --- a network in which a label can be read at layer 1 only ---


class Multiply(nn.Module):
    """Writes the product of the first two values into the third."""

    def forward(self, hidden):
        return torch.cat([hidden[..., :2], 4 * hidden[..., :1] * hidden[..., 1:2], hidden[..., 3:]], -1)


class Erase(nn.Module):
    def forward(self, hidden):
        return torch.cat([hidden[..., :2], torch.zeros_like(hidden[..., :1]), hidden[..., 3:]], -1)


class Planted(nn.Module):
    """The two signs of an input are in every layer; their product, which no linear probe can make, only in layer 1."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.config = PretrainedConfig(num_hidden_layers=DEPTH, hidden_size=WIDTH)
        self.scale = nn.Parameter(torch.tensor(scale))
        self.blocks = nn.ModuleList([Multiply(), Erase(), nn.Identity()])

    def forward(self, values):
        values = nn.functional.pad(values, (0, WIDTH - values.shape[-1], 1, 0))  # one position before the input
        hidden = torch.cat([values[..., :2], torch.zeros_like(values[..., :1]), values[..., 2:-1]], -1) * self.scale
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


def signs(n, seed=0):
    """Inputs of 2 to 6 positions with two signs each and noise beside them, and the labels of the inputs."""
    random = np.random.default_rng(seed)
    a, b = random.choice([-1, 1], n), random.choice([-1, 1], n)
    inputs = []
    for i in range(n):
        length = random.integers(2, 7)
        noise = 0.3 * random.normal(size=(length, 2))
        inputs.append(np.c_[np.full(length, a[i]), np.full(length, b[i]), noise].astype(np.float32))
    return inputs, {"product": (a * b).tolist(), "first": ["minus" if sign < 0 else "plus" for sign in a]}


def source_of(inputs, labels, ids=None):
    rows = lambda: zip(ids or [None] * len(inputs), inputs, strict=True)  # noqa: E731
    return Source("signs", rows, unit="input").with_labels(labels)


MODEL = (Planted(), WalkProcessor())
TRAIN, TEST = signs(150), signs(61, seed=1)


def probe(train=TRAIN, test=TEST, model=MODEL, **options):
    options = {"label": "product"} | options
    return layerwise.probe(model, source_of(*train), source_of(*test), **options)


def values_of(table, metric):
    return {row.layer: row.value for row in table.where(metric=metric, norm="raw")}


@pytest.fixture(scope="module")
def planted():
    return probe(label="product,first")


def test_a_label_that_is_in_one_layer_is_found_there(planted):
    for name in ("linear", "attention"):
        by_layer = values_of(planted, f"product_{name}_accuracy")
        assert by_layer[1] == 100.0 and max(by_layer[k] for k in (0, 2, 3)) < 75, (name, by_layer)
        assert set(values_of(planted, f"first_{name}_accuracy").values()) == {100.0}, "and one that is in all, in all"
    weights = values_of(planted, "product_weighted_sum_weight")
    assert sum(weights.values()) == pytest.approx(1, abs=1e-5) and max(weights, key=weights.get) == 1
    assert values_of(planted, "product_weighted_sum_accuracy")[DEPTH] > 95


def test_rows_have_wilson_intervals_and_say_what_was_read(planted):
    assert {row.metric for row in planted} == {
        f"{label}_{name}" for label in ("product", "first")
        for name in ("linear_accuracy", "knn_accuracy", "attention_accuracy", "weighted_sum_accuracy",
                     "weighted_sum_weight")
    }  # fmt: skip
    for row in planted:
        if row.metric.endswith("accuracy"):
            expected = binomtest(round(row.value * row.n / 100), row.n).proportion_ci(method="wilson")
            assert (row.ci_low / 100, row.ci_high / 100) == pytest.approx((expected.low, expected.high)) and row.n == 61
        assert row.rows == "-" and row.pooling == ("-" if "attention" in row.metric else "mean")
    assert planted.run["labels"]["product"]["classes"] == 2 and planted.kind == "probe"
    assert (planted.run["data"]["prompts"], planted.run["test"]["examples"]) == (211, 61)
    assert planted.run["forwarded"] == 211, "one forward pass per example, for four probes and two labels"


def test_the_difference_from_the_last_layer_is_paired(planted):
    for one in planted.run["probes"]:
        if "minus_last" not in one:
            assert one["layer"] == DEPTH
            continue
        rows = planted.where(metric=one["metric"], norm="raw")
        by_layer = {row.layer: row.value for row in rows}
        last = values_of(planted, one["metric"])[DEPTH]
        assert one["minus_last"]["points"] == pytest.approx(by_layer[one["layer"]] - last)
    gap = next(one for one in planted.run["probes"] if one["metric"] == "product_linear_accuracy" and one["layer"] == 1)
    assert gap["minus_last"]["ci_low"] > 0 and gap["chosen"]["C"] > 0


# --- each probe against another implementation ---


def test_the_linear_probe_is_sklearns_on_vectors_of_plain_transformers(tiny_llama):
    texts = [" ".join(f"w{(i * 7 + j * j) % 89}" for j in range(3 + i % 5)) for i in range(90)]
    labels = [str((i * 7 % 89) % 3) for i in range(90)]  # of the first word
    train, test = (layerwise.texts(texts[a:b]).with_labels({"y": labels[a:b]}) for a, b in ((0, 60), (60, 90)))
    table = layerwise.probe(tiny_llama, train, test, label="y", probes="linear")
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_llama), AutoModel.from_pretrained(tiny_llama)
    with torch.no_grad():
        states = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
                  for text in texts]  # fmt: skip
    for record in table.run["probes"]:
        if record["norm"] == "raw" and record["layer"] < 3:  # transformers' last state is normed
            rows = np.array([s[record["layer"]][0].mean(0).double().numpy() for s in states])
        elif record["norm"] == "normed":
            rows = np.array([s[-1][0].mean(0).double().numpy() for s in states])
        else:
            continue
        scaler = StandardScaler().fit(rows[:60])
        fitted = LogisticRegression(C=record["chosen"]["C"], max_iter=1000).fit(
            scaler.transform(rows[:60]), labels[:60]
        )
        right = 100 * fitted.score(scaler.transform(rows[60:]), labels[60:])
        found = next(row.value for row in table if (row.layer, row.norm) == (record["layer"], record["norm"]))
        assert found == pytest.approx(right, abs=100 / 30 + 1e-9), "at most one example on the other side of a border"


def task_of(train, test, held_out):
    fitted = np.setdiff1d(np.arange(len(train)), held_out)
    return LabelTask("y", tuple("abc"), np.array(train), np.array(test), fitted, np.array(held_out))


def test_the_knn_probe_votes_like_sklearns():
    random = np.random.default_rng(0)
    centres = random.normal(size=(3, 7))
    codes = random.integers(0, 3, 140)
    rows = (centres[codes] + random.normal(size=(140, 7))).astype(np.float32)
    task = task_of(codes[:100], codes[100:], range(0, 100, 5))
    fit = knn_probe(rows[:100], rows[100:], task)
    theirs = KNeighborsClassifier(int(fit.chosen["k"]), metric="cosine").fit(rows[:100], codes[:100])
    votes = theirs.predict_proba(rows[100:])
    assert (votes[np.arange(40), fit.predicted] == votes.max(1)).all()
    assert (fit.predicted == task.test).mean() > 0.6
    best = max((1, 5, 10, 20), key=lambda k: (
        KNeighborsClassifier(k, metric="cosine").fit(rows[task.fitted], codes[task.fitted])
        .score(rows[task.held_out], codes[task.held_out])))  # fmt: skip
    assert abs(best - fit.chosen["k"]) <= 20 and fit.chosen["k"] in (1, 5, 10, 20)


def test_of_equally_many_votes_the_nearest_decides():
    assert majority(np.array([[2, 1, 1, 2, 0], [0, 1, 1, 2, 2], [1, 0, 0, 2, 2]]), 3).tolist() == [2, 1, 0]


@pytest.mark.parametrize(("width", "heads"), [(24, 8), (15, 5), (11, 1)])
def test_the_attention_probe_is_torchs_multi_head_attention(width, heads):
    assert head_count(width) == heads
    made = AttentionProbe(width, 3, torch.Generator().manual_seed(1)).double()
    made.query.data *= 100  # far from uniform attention
    lengths = torch.tensor([5, 1, 3])
    positions = 3 + 2 * torch.randn(9, width, dtype=torch.float64)
    found = made(positions, lengths)
    theirs = nn.MultiheadAttention(width, heads, bias=False, batch_first=True).double()
    theirs.in_proj_weight.data = torch.cat([torch.eye(width).double(), made.key.data, made.value.data])
    theirs.out_proj.weight.data = torch.eye(width).double()
    normed = (positions - positions.mean(0)) / (positions.var(0, unbiased=False) + 1e-5).sqrt()
    for i, x in enumerate(normed.split(lengths.tolist())):
        attended, weights = theirs(made.query[None, None], x[None], x[None])
        expected = attended[0, 0] @ made.classifier.T + made.bias
        torch.testing.assert_close(found[i], expected)
    assert (weights - 1 / 3).abs().max() > 0.03, "the attention is not uniform"


def test_the_attention_probe_tests_with_the_statistics_of_training():
    made = AttentionProbe(16, 2, torch.Generator().manual_seed(1))
    batches = [torch.randn(n, 16) * 3 + 5 for n in (40, 40, 40)]
    for batch in batches:
        made(batch, torch.tensor([len(batch)]))
    torch.testing.assert_close(made.norm.running_mean, torch.cat(batches).mean(0), rtol=1e-4, atol=1e-4)
    one = made.eval()(batches[0][:3], torch.tensor([3]))
    torch.testing.assert_close(one, made(batches[0][:5], torch.tensor([3, 2]))[:1]), "alone or beside others"


def test_the_weighted_sum_is_that_of_every_position():
    """SUPERB sums layers position by position, then takes the mean over positions."""
    states = torch.randn(4, 9, 6)  # layers, positions, width
    made = WeightedSumProbe(4, 6, 3)
    for parameter in made.parameters():
        parameter.data = torch.randn_like(parameter)
    weights = made.scores.exp() / made.scores.exp().sum()
    by_position = sum(w * x for w, x in zip(weights, states, strict=True)).mean(0)
    torch.testing.assert_close(made(states.mean(1)[None])[0], made.classifier @ by_position + made.bias)


def test_intervals():
    for k, n in ((0, 5), (5, 5), (37, 61), (1, 1000)):
        expected = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson_interval(k, n) == pytest.approx((expected.low, expected.high))
    assert all(math.isnan(x) for x in (*wilson_interval(0, 0), *paired_share_interval(0, 0, 0)))
    low, high = paired_share_interval(0, 0, 100)
    assert low == -high and 0 < high < 0.05
    random, covered = np.random.default_rng(0), 0
    for _ in range(2000):  # 70 examples; 12 % succeed only in the first, 5 % only in the second
        gained, lost, _ = random.multinomial(70, [0.12, 0.05, 0.83])
        low, high = paired_share_interval(gained, lost, 70)
        covered += low <= 0.07 <= high
    assert 0.93 < covered / 2000 < 0.975


# --- what must not matter ---


def same(one, other, tolerance=0.0):
    a, b = ({(r.metric, r.layer, r.norm): r.value for r in table} for table in (one, other))
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert value == pytest.approx(b[key], abs=tolerance), key


BRIEF = {"label": "first", "epochs": 3}  # what holds for three epochs holds for more


@pytest.fixture(scope="module")
def brief():
    return probe(**BRIEF)


def test_twice_gives_the_same(brief):
    same(brief, probe(**BRIEF))


def test_the_order_of_examples_does_not_matter(brief):
    turned = [([*inputs[::-1]], {name: labels[::-1] for name, labels in of.items()}) for inputs, of in (TRAIN, TEST)]
    same(brief, probe(*turned, **BRIEF), tolerance=1e-4)


def test_batches_padding_and_shards_do_not_matter(brief, monkeypatch):
    monkeypatch.setattr(probe_run, "SHARD_BYTES", 5000)
    same(brief, probe(**BRIEF, batch_tokens=1), tolerance=1e-4)


def test_a_label_asked_for_alone_scores_the_same(planted):
    alone = probe(label="first", probes="knn,linear")
    for metric in ("first_knn_accuracy", "first_linear_accuracy"):
        assert values_of(alone, metric) == values_of(planted, metric)


def test_another_seed_holds_out_other_examples():
    codes, digests = np.repeat([0, 1, 2], [20, 9, 1]), range(30)
    first, same_seed, other = (set(fifths(codes, digests, seed)[0]) for seed in (0, 0, 1))
    assert first == same_seed != other and len(first) == 6
    assert sum(codes[i] == 0 for i in first) == 4, "each class in proportion"
    everything = np.concatenate(fifths(codes, digests, 0))
    assert sorted(everything) == [*range(29)], "each example once, but never the only example of a class"


# --- what is stored ---


def test_only_real_positions_are_stored_and_a_run_resumes_without_the_model(tmp_path, monkeypatch):
    first = probe(out=tmp_path / "run", probes="attention,linear")
    inputs = [*TRAIN[0], *TEST[0]]
    lengths = [shard["000-raw-lengths"].array() for shard in
               map(features.places_in, sorted((tmp_path / "run/features").iterdir()))]  # fmt: skip
    assert sum(x.sum() for x in lengths) == sum(1 + len(one) for one in inputs), "no padding"
    again = probe(out=tmp_path / "run", probes="attention,linear")
    same(first, again)
    assert again.run["forwarded"] == 0
    monkeypatch.setattr(probe_run, "fit_readout", lambda *args: pytest.fail("nothing is trained again either"))
    same(first, probe(out=tmp_path / "run", probes="attention,linear"))


def test_a_run_with_an_example_that_was_never_held_out_resumes_too(tmp_path, monkeypatch):
    """The only example of a class stays among those that the probe is fitted on."""
    inputs, labels = TRAIN
    once = inputs, {"product": [7, *labels["product"][1:]]}
    first = probe(once, out=tmp_path / "run", probes="linear")
    monkeypatch.setattr(probe_run, "fit_readout", lambda *args: pytest.fail("nothing is trained again"))
    same(first, probe(once, out=tmp_path / "run", probes="linear"))


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    whole, made = probe(probes="linear"), []
    train = probe_run.fit_readout

    def stopping(*args):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(1)
        return train(*args)

    monkeypatch.setattr(probe_run, "fit_readout", stopping)
    with pytest.raises(KeyboardInterrupt) as stopped:
        probe(out=tmp_path / "run", probes="linear")
    assert "run the same command again" in stopped.value.__notes__[0]
    made.clear()
    resumed = probe(out=tmp_path / "run", probes="linear")
    assert len(made) == 2 and resumed.run["forwarded"] == 0
    same(whole, resumed)


def test_damaged_files_are_made_again_and_other_files_stay(tmp_path):
    out = tmp_path / "run"
    first = probe(out=out, probes="knn")
    shard, *_ = (out / "features").glob("features-*")
    shard.write_bytes(shard.read_bytes()[:-9] + b"x" * 9)
    for fit in (out / "fits").iterdir():
        fit.write_text("{")
    (out / "features" / "mine.safetensors").write_text("mine")
    again = probe(out=out, probes="knn", features="evict")
    same(first, again)
    assert again.run["forwarded"] > 0
    assert [path.name for path in (out / "features").iterdir()] == ["mine.safetensors"]


def test_without_out_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    probe(probes="attention", epochs=1)
    assert not list(tmp_path.iterdir())


def test_further_labels_and_probes_are_added_to_a_folder(tmp_path, monkeypatch):
    out = tmp_path / "run"
    probe(out=out, probes="knn")
    both = probe(out=out, probes="linear", label="first")
    assert {row.metric for row in both} == {"product_knn_accuracy", "first_linear_accuracy"}
    assert len(layerwise.LayerTable.load(out)) == len(both)
    assert both.run["options"]["label"] == "product,first"
    found = layerwise.difference(out, "product_knn_accuracy", 0, 1, rows="-")
    rows = values_of(both, "product_knn_accuracy")
    assert found.mean == pytest.approx(rows[1] - rows[0]) and found.n == 61
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # before its table is written
        patched.setattr(layerwise.LayerTable, "save", Mock(side_effect=KeyboardInterrupt))
        probe(out=out, probes="linear", label="product")
    assert layerwise.difference(out, "product_knn_accuracy", 0, 1, rows="-") == found
    probe(out=out, probes="linear", label="product")
    assert layerwise.difference(out, "product_knn_accuracy", 0, 1, rows="-") == found
    with pytest.raises(RunError, match="different probes .seed: 0 there, 1 asked for"):
        probe(out=out, probes="knn", seed=1)
    with pytest.raises(RunError, match="with other settings"):
        probe(out=out, model=(Planted(2.0), WalkProcessor()), probes="knn")


def test_a_disk_that_is_too_small_is_refused_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setattr(features.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 20_000}))
    monkeypatch.setattr(FeatureStore, "add", None)
    with pytest.raises(InputError, match=r"needs about \d+ MB|needs about [\d.]+ MB.*--probes linear,knn,weighted_sum"):
        probe(probes="attention", out=tmp_path / "run")
    monkeypatch.undo()
    probe(probes="linear", out=tmp_path / "other", layers=1)


def test_the_predicted_size_is_that_of_the_files(tmp_path, monkeypatch):
    predicted = []
    monkeypatch.setattr(probe_run, "require_disk", lambda folder, needed: predicted.append(needed))
    probe(probes="attention", out=tmp_path / "run", epochs=1)
    written = sum(path.stat().st_size for path in (tmp_path / "run/features").iterdir())
    assert predicted[0] == pytest.approx(written, rel=0.25)


def test_values_too_large_for_half_precision_are_reported():
    model = (Planted(1e5), WalkProcessor())
    with pytest.raises(NotFiniteError, match="layer 0 has values too large for float16.*--precision float32"):
        probe(model=model, probes="attention", epochs=1)
    assert len(probe(model=model, probes="attention", precision="float32", epochs=1))


# --- labels ---


@pytest.mark.filterwarnings("ignore:left out 30 of 40 test")
def test_labels_are_read_from_columns_of_every_kind_of_table(tiny_llama, tmp_path):
    frame = pd.DataFrame({"text": [f"w{i} w{i + 1}" for i in range(40)], "y": [i % 2 for i in range(40)]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    tables = [layerwise.probe(tiny_llama, tmp_path / f"t.{kind}", label="y", probes="knn", layers=1)
              for kind in ("parquet", "csv", "jsonl")]  # fmt: skip
    same(tables[0], tables[1])
    same(tables[0], tables[2])
    assert {*tables[0].run["labels"]} == {"y"}
    mixed = layerwise.probe(tiny_llama, layerwise.labelled(tmp_path / "t.csv", "y", limit=30),
                            layerwise.labelled(tmp_path / "t.parquet", "y"), label="y", probes="knn")  # fmt: skip
    assert mixed.run["test"] | {"name": "", "fingerprint": "", "options": {}} == {
        "name": "", "fingerprint": "", "options": {}, "examples": 10, "left_out": 30,
    }  # fmt: skip


def test_labels_stay_with_their_rows(tmp_path):
    pd.DataFrame({"text": ["a", "", "c", "d", "e"], "y": [1, 2, 3, 4, 5]}).to_csv(tmp_path / "t.csv", index=False)
    of = lambda source: {example.text: example.labels["y"] for example in source}  # noqa: E731
    everything = {"a": "1", "c": "3", "d": "4", "e": "5"}
    assert of(layerwise.labelled(tmp_path / "t.csv", "y")) == everything, "a blank row takes its label with it"
    assert of(layerwise.labelled(tmp_path / "t.csv", "y", limit=2)) == {"a": "1", "c": "3"}
    assert of(layerwise.labelled(tmp_path / "t.csv", "y", sample=3)).items() < everything.items()
    kept = layerwise.labelled(tmp_path / "t.csv", "y").filter(lambda text: text in "de", "d and e")
    assert of(kept) == {"d": "4", "e": "5"}
    with pytest.raises(InputError, match="without limit"):
        layerwise.labelled(layerwise.texts(tmp_path / "t.csv", limit=2), "y")
    with pytest.raises(InputError, match="has no column 'yy'.*Did you mean --label y"):
        layerwise.labelled(tmp_path / "t.csv", "yy")
    with pytest.raises(InputError, match="a list of 2 texts is not a file: give its labels with source.with_labels"):
        layerwise.labelled(layerwise.texts(["a", "b"]), "y")
    for wrong, count in (([1], 1), ([1, 2, 3], 3)):
        with pytest.raises(InputError, match=f"has 2 rows, but there are {count} labels"):
            list(layerwise.texts(["a", "b"]).with_labels({"y": wrong}))
    with pytest.raises(InputError, match="equally long"):
        layerwise.texts(["a", "b"]).with_labels({"y": [1, 2], "z": [1]})


def test_labels_of_a_hub_data_set_are_the_names_of_its_classes(tmp_path):
    """A folder of Parquet files is what the hub serves; the loader is the same."""
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict(
        {"text": ["a", "b", "c"], "y": [1, 0, 1], "n": [7, 8, 9]},
        features=datasets.Features(
            {
                "text": datasets.Value("string"),
                "y": datasets.ClassLabel(names=["no", "yes"]),
                "n": datasets.Value("int64"),
            }
        ),
    )
    (tmp_path / "data").mkdir()
    made.to_parquet(tmp_path / "data" / "test-00000.parquet")
    assert read_columns(str(tmp_path), ["y", "n"], "test", None) == {"y": ["yes", "no", "yes"], "n": [7, 8, 9]}


def test_a_missing_label_is_named_by_row(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "y": 1}\n{"text": "b", "y": null}\n')
    with pytest.raises(InputError, match="t.jsonl, row 2: y must be text or a number, but is None"):
        layerwise.labelled(tmp_path / "t.jsonl", "y")


def test_test_examples_that_are_in_the_training_data_are_left_out():
    both = ([*TEST[0], *TRAIN[0][:20]], {name: [*TEST[1][name], *TRAIN[1][name][:20]] for name in TEST[1]})
    with pytest.warns(UserWarning, match="left out 20 of 81 test examples"):
        table = probe(test=both, probes="knn")
    same(table, probe(probes="knn"))
    with pytest.raises(InputError, match="every test example of signs is also in the training data"):
        probe(test=TRAIN, probes="knn")


def test_a_class_that_only_the_test_has_counts_as_wrong():
    labels = [*TEST[1]["product"]]
    labels[:7] = [9] * 7
    with pytest.warns(UserWarning, match=r"7 test examples have a product that is not in the training data \(9\)"):
        table = probe(test=(TEST[0], {"product": labels}), probes="linear", layers=1)
    assert table.scores[0].value == pytest.approx(100 * 54 / 61)
    assert table.run["labels"]["product"]["unseen_examples"] == 7


@pytest.mark.parametrize(("labels", "message"), [
    ([1] * 150, "all training examples have the y '1'; a probe needs at least two classes"),
    ([i / 7 for i in range(150)], "y has 150 values in 150 training examples; probes predict classes"),
])  # fmt: skip
def test_labels_that_are_no_classes_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        probe((TRAIN[0], {"y": labels}), (TEST[0], {"y": labels[:61]}), label="y")


@pytest.mark.filterwarnings("ignore:. test example")
def test_classes_with_one_example_are_allowed():
    labels = [*TRAIN[1]["product"]]
    labels[3] = labels[90] = 5
    labels[7] = 6
    table = probe((TRAIN[0], {"product": labels}), epochs=1)
    assert table.run["labels"]["product"]["classes"] == 4 and all(row.value == row.value for row in table)


def test_too_few_examples_and_unknown_labels_are_refused():
    few = ([*TRAIN[0][:9]], {"product": TRAIN[1]["product"][:9]})
    with pytest.raises(InputError, match="9 training examples of signs are too few; pass at least 10"):
        probe(few)
    with pytest.raises(InputError, match="signs has no label 'topic' .*; it has product, first"):
        probe(label="topic")
    with pytest.raises(InputError, match="probes 'linaer' is not one of.*did you mean linear"):
        probe(probes="linaer")
    with pytest.raises(InputError, match="must be a folder, not a URL"):
        probe(out="s3://bucket/run")


def test_one_set_is_split_by_content():
    inputs, labels = signs(120, seed=2)
    twice = source_of([*inputs, *inputs], {name: [*of, *of] for name, of in labels.items()})
    found = read_labelled(twice, None, ["product"], test_share=0.3, seed=0)
    contents = {role: {e.content for e in found.examples if e.role == role} for role in ("train", "test")}
    assert not contents["train"] & contents["test"] and len(found.examples) == 240
    assert 0.2 < len(contents["test"]) / 120 < 0.4
    task = label_task(found, "product", 0)
    assert len(task.train) + len(task.test) == 240
    assert read_labelled(twice, None, ["product"], test_share=0.3, seed=1).fingerprint("test") != found.fingerprint(
        "test"
    )


def test_data_that_change_while_they_are_read_are_noticed():
    inputs, labels = signs(30)
    found = read_labelled(source_of(inputs, labels), None, ["product"], test_share=0.3, seed=0)
    inputs[4] += 1
    with pytest.raises(RunError, match="signs has changed since the run started"):
        list(found.inputs())


# --- the command line, and other verbs on its runs ---


def test_the_command_line_trains_probes_and_says_how_the_best_layer_compares(tiny_llama, tmp_path, capsys):
    frame = pd.DataFrame(
        {"body": [f"w{i} w{i + 1} w3" for i in range(60)], "y": ["a" if i % 3 else "b" for i in range(60)]}
    )
    frame[:40].to_csv(tmp_path / "train.csv", index=False)
    frame[40:].to_csv(tmp_path / "test.csv", index=False)
    words = [tiny_llama, "--data", str(tmp_path / "train.csv"), "--test", str(tmp_path / "test.csv"), "--label", "y"]
    words += ["--column", "body", "--probes", "linear,weighted_sum", "--out", str(tmp_path / "run")]
    assert main(["probe", *words]) == 0
    printed = capsys.readouterr()
    assert "y_linear_accuracy" in printed.out and "y_weighted_sum_weight" in printed.out
    assert "y: 2 classes, 40 examples to train and 20 to test on; the most frequent class alone" in printed.err
    assert "y_linear_accuracy: " in printed.err and f"saved in {tmp_path / 'run'}" in printed.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["options"]["data"]["column"] == "body" and record["options"]["test"]["data"].endswith("test.csv")
    assert main(["probe", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["forwarded"] == 0
    assert main(["compare", str(tmp_path / "run"), str(tmp_path / "run"), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)["pairs"][0]["changes"]
    assert all(row["paired"] for row in changes if row["metric"].endswith("linear_accuracy"))


def test_the_sentence_on_the_best_layer_names_what_it_compares_with():
    rows = {(0, "raw"): 58.18, (2, "raw"): 27.0, (2, "normed"): 38.18}
    scores = [
        LayerScore("m", k, k / 2, norm, "all", "mean", "-", "y_linear_accuracy", value, 55)
        for (k, norm), value in rows.items()
    ]
    gap = {"points": 20.0, "ci_low": 5.0, "ci_high": 33.0}
    probes = [{"metric": "y_linear_accuracy", "layer": k, "norm": norm, "minus_last": gap} for k, norm in rows]
    (line,) = closing_lines(LayerTable(tuple(scores), {"labels": {}, "probes": probes[:2]}))
    found = "layer 0 scores 58.2, +20.0 [+5.0, +33.0] points above the last after the final norm, 38.2"
    assert line == f"y_linear_accuracy: {found}"


def test_readouts_include_the_normed_last_layer(tiny_llama):
    source = layerwise.texts([f"w{i} w{i + 1}" for i in range(50)]).with_labels({"y": [i % 2 for i in range(50)]})
    table = layerwise.probe(tiny_llama, source, label="y", probes="knn,attention", epochs=1, layers="1,last")
    assert sorted({(row.layer, row.norm) for row in table}) == [(1, "raw"), (3, "normed"), (3, "raw")]

"""eval: mteb's own scores of every layer, each text through the model once, never a vector of another kind."""

import json
import math
import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from families import DEPTH

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, LayerwiseError, RunError
from layerwise.core.files import write_atomically
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Readout, Recipe
from layerwise.models.opening import open_network
from layerwise.models.spec import ModelSpec
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.eval import encoding, scoring
from layerwise.verbs.eval.data_root import read_root, write_task
from layerwise.verbs.eval.encoder import experiment_settings, model_name
from layerwise.verbs.eval.tasks import PAPER_32, choose_tasks
from layerwise.verbs.eval.vectors import VectorKind, VectorsMissingError, VectorStore, segment_file
from layerwise.verbs.lab.tradeoff import measured as tradeoff
from layerwise.verbs.report.correlations import correlation, correlations

mteb = pytest.importorskip("mteb")
pytestmark = pytest.mark.filterwarnings("ignore")  # of mteb and its dependencies

WORDS = [f"w{i}" for i in range(80)]


@pytest.fixture(autouse=True)
def no_leftovers(tmp_path, monkeypatch):
    """The data sets library caches local folders by name; where mteb runs without us, it gets a cache of its own."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "usual cache")


def text(rng, topic):
    return " ".join(WORDS[(topic * 16 + int(i)) % 80] for i in rng.integers(0, 20, 6))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One small task of each type, made of the tiny tokenizer's words: topics that a model can tell apart."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("root")

    def labelled(n):
        return pd.DataFrame({"text": [text(rng, i % 4) for i in range(n)], "label": [i % 4 for i in range(n)]})

    pairs = pd.DataFrame(
        {
            "sentence1": [text(rng, i % 4) for i in range(40)],
            "sentence2": [text(rng, (i + i % 3) % 4) for i in range(40)],
            "score": [float(5 - i % 3) for i in range(40)],
            "labels": [int(i % 3 == 0) for i in range(40)],
        }
    )
    found = pd.DataFrame(
        {
            "query": [text(rng, i % 4) for i in range(12)],
            "positive": [[text(rng, i % 4)] for i in range(12)],
            "negative": [[text(rng, (i + k) % 4) for k in (1, 2, 3)] for i in range(12)],
        }
    )
    write_task(folder, "OwnTopics", "Classification", labelled(40), labelled(80))
    write_task(folder, "OwnClusters", "Clustering", labelled(40))
    write_task(folder, "OwnPairs", "PairClassification", pairs)
    write_task(folder, "OwnSTS", "STS", pairs)
    write_task(folder, "OwnReranking", "Reranking", found)
    write_task(folder, "OwnRetrieval", "Retrieval", found)
    return folder


def scores(table):
    return table.to_pandas().set_index(["metric", "layer", "norm", "tokens"]).value.sort_index()


@pytest.mark.long
def test_every_type_is_scored_on_every_layer_with_one_pass_a_text(tiny_llama, root, tmp_path):
    table = layerwise.eval(tiny_llama, "all", data_root=root, out=tmp_path, workers=2)
    frame = table.to_pandas()
    assert set(frame.metric) == set(read_root(root))
    assert frame.groupby("metric").size().eq(DEPTH + 2).all(), "every layer, and the last one normed"
    assert frame.value.between(-100, 100).all() and frame.value.std() > 1
    texts = {t for p in root.glob("*/*/*.parquet") for t in strings(pd.read_parquet(p))}
    assert table.run["forwarded_texts"] <= len(texts)
    results = list(tmp_path.glob("*/mteb/**/OwnSTS.json"))
    assert {p.parent.name for p in results} >= {f"layer_{k}" for k in range(DEPTH + 1)}, "mteb's own layout"
    again = layerwise.eval(tiny_llama, "all", data_root=root, out=tmp_path, workers=0)
    assert again.run["forwarded_texts"] == 0
    pd.testing.assert_series_equal(scores(again), scores(table))


def test_a_streamed_model_has_the_same_scores(tiny_llama, root, tmp_path):
    ordinary, streamed = (
        layerwise.eval(
            ModelSpec(tiny_llama, stream=stream), "OwnSTS", data_root=root, out=tmp_path / str(stream), workers=0
        )
        for stream in (False, True)
    )
    pd.testing.assert_series_equal(scores(ordinary), scores(streamed), check_exact=True)


def strings(frame):
    for name in frame.columns.intersection(["text", "sentence1", "sentence2", "sentences"]):
        for value in frame[name]:
            yield from [value] if isinstance(value, str) else value


def test_each_unique_text_is_forwarded_exactly_once(tiny_llama, root, tmp_path, monkeypatch):
    seen = []
    real = encoding.pooled_vectors

    def counting(network, examples, readouts, **options):
        seen.extend(example.text for example in examples)
        return real(network, examples, readouts, **options)

    monkeypatch.setattr(encoding, "pooled_vectors", counting)
    table = layerwise.eval(tiny_llama, "OwnSTS,OwnPairs,OwnRetrieval", data_root=root, out=tmp_path, workers=0)
    assert len(seen) == len(set(seen)) == table.run["forwarded_texts"]


def test_scores_are_those_of_plain_sentence_transformers(tiny_bert, root, tmp_path):
    """An independent way: a model cut by hand behind mean pooling, scored by mteb without any of our code."""
    from sentence_transformers import SentenceTransformer

    from layerwise.verbs.eval.tasks import make_task

    table = layerwise.eval(tiny_bert, "all", data_root=root, out=tmp_path, layers="2", workers=0)
    plain = SentenceTransformer(tiny_bert, device="cpu")
    plain[0].auto_model.encoder.layer = plain[0].auto_model.encoder.layer[:2]
    mine = {s.metric: s.value for s in table}
    for choice in choose_tasks("all", root):
        result = mteb.evaluate(plain, make_task(choice), cache=None, show_progress_bar=False, co2_tracker=False)
        tolerance = 0.5 if choice.type == "Classification" else 1e-3
        assert mine[choice.name] == pytest.approx(100 * result.task_results[0].get_score(), abs=tolerance), choice.name


def test_a_corpus_that_is_searched_in_blocks_gives_the_same_score_as_whole(tiny_bert, root, tmp_path, monkeypatch):
    from mteb.models.search_wrappers import SearchEncoderWrapper

    options = {"data_root": root, "layers": "2", "workers": 0}
    whole = layerwise.eval(tiny_bert, "OwnRetrieval", out=tmp_path / "whole", **options)
    begin, blocks = SearchEncoderWrapper.__init__, []

    def in_blocks(self, model, *args, **others):
        begin(self, model, *args, **others)
        self.corpus_chunk_size = 7
        blocks.append(self)

    monkeypatch.setattr(SearchEncoderWrapper, "__init__", in_blocks)
    parts = layerwise.eval(tiny_bert, "OwnRetrieval", out=tmp_path / "blocks", **options)
    assert blocks and scores(parts).tolist() == scores(whole).tolist()


def test_an_interrupted_evaluation_goes_on_and_computes_nothing_twice(tiny_llama, root, tmp_path, monkeypatch):
    whole = layerwise.eval(tiny_llama, "OwnSTS,OwnPairs", data_root=root, out=tmp_path / "whole", workers=0)
    real, calls = scoring.Scorer.score, []

    def failing(self, task, readout, stores):
        calls.append(task.name)
        if len(calls) == 2:  # the first readout of the second task
            raise KeyboardInterrupt
        return real(self, task, readout, stores)

    monkeypatch.setattr(scoring.Scorer, "score", failing)
    with pytest.raises(KeyboardInterrupt):
        layerwise.eval(tiny_llama, "OwnSTS,OwnPairs", data_root=root, out=tmp_path / "run", workers=0)
    monkeypatch.setattr(scoring.Scorer, "score", real)
    resumed = layerwise.eval(tiny_llama, "OwnSTS,OwnPairs", data_root=root, out=tmp_path / "run", workers=0)
    pd.testing.assert_series_equal(scores(resumed), scores(whole))
    assert resumed.run["forwarded_texts"] < whole.run["forwarded_texts"]


def test_a_task_that_fails_stops_no_other_and_is_told(tiny_llama, root, tmp_path, monkeypatch, capsys):
    usual, broken = scoring.load_task, {"OwnSTS"}

    def loaded(choice):
        if choice.name in broken:
            raise ValueError("no such column\nand more")
        return usual(choice)

    monkeypatch.setattr(scoring, "load_task", loaded)
    command = ["eval", tiny_llama, "--tasks", "all", "--data-root", str(root), "--out", str(tmp_path), "--workers", "0"]
    assert main(command) == 2
    printed = capsys.readouterr().err
    assert "1 of 6 tasks failed: OwnSTS (ValueError: no such column)" in printed and "run the same command" in printed
    found = layerwise.LayerTable.load(tmp_path)
    assert len({row.metric for row in found}) == 5 and found.run["failed"].keys() == {"OwnSTS"}
    broken.clear()
    assert main(command) == 0
    again = layerwise.LayerTable.load(tmp_path)
    assert len({row.metric for row in again}) == 6 and not again.run["failed"]


def test_where_only_upper_layers_fail_the_lower_ones_are_scored(root, broken_llama, tmp_path):
    expected = "OwnTopics .layer 2 contains NaN or infinity in torch.float32 for example '.*weights"
    with pytest.raises(RunError, match=expected):
        layerwise.eval(broken_llama, "OwnTopics,OwnClusters", data_root=root, out=tmp_path / "e")
    found = LayerTable.load(tmp_path / "e")
    assert {row.layer for row in found} == {0, 1} and {row.metric for row in found} == {"OwnTopics", "OwnClusters"}


def test_the_table_of_another_run_is_never_replaced(tiny_llama, tiny_bert, root, word_texts, tmp_path):
    layerwise.scan(tiny_llama, word_texts, metrics="curvature", out=tmp_path / "scan")
    layerwise.lab.stress(tiny_llama, word_texts[:4], kind="repeat_any", metrics="curvature", out=tmp_path / "stress")
    layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path / "eval", layers="1", max_length=32)
    others = [("scan", tiny_llama, 32), ("stress", tiny_llama, 32), ("eval", tiny_bert, 32), ("eval", tiny_llama, 16)]
    for folder, model, length in others:
        before = (tmp_path / folder / "table.parquet").read_bytes()
        with pytest.raises(LayerwiseError, match="contains (the table of another run|a scan|a stress test)"):
            layerwise.eval(model, "OwnSTS", data_root=root, out=tmp_path / folder, layers="1", max_length=length)
        assert (tmp_path / folder / "table.parquet").read_bytes() == before


def test_a_damaged_segment_is_computed_again_and_never_read(tiny_llama, root, tmp_path):
    whole = layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path, workers=0)
    segment, *_ = sorted(tmp_path.glob("*/vectors/*/segment-*"))
    data = bytearray(segment.read_bytes())
    data[-50] ^= 255
    segment.write_bytes(bytes(data))
    for path in tmp_path.glob("*/scores/OwnSTS/*.json"):
        path.unlink()
    again = layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path, workers=0)
    assert 0 < again.run["forwarded_texts"] < whole.run["forwarded_texts"], "only what was damaged"
    pd.testing.assert_series_equal(scores(again), scores(whole))


def test_evicted_vectors_are_gone_and_scores_stay_the_same(tiny_llama, root, tmp_path):
    kept = layerwise.eval(tiny_llama, "OwnSTS,OwnClusters", data_root=root, out=tmp_path / "a", workers=0)
    gone = layerwise.eval(
        tiny_llama, "OwnSTS,OwnClusters", data_root=root, out=tmp_path / "b", workers=0, vectors="evict", tokens="all"
    )
    pd.testing.assert_series_equal(scores(kept), scores(gone))
    segments = [list((tmp_path / name).glob("*/vectors/*/segment-*")) for name in "ab"]
    assert segments[0] and not segments[1]


def test_scores_with_other_prompts_are_not_taken_for_these(tiny_llama, root, tmp_path):
    plain = layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path, layers="2")
    asked = {"data_root": root, "layers": "2", "prompts": {"STS": "w70 w71 "}}
    with pytest.raises(InputError, match="another run .prompts is {} there, not {'STS'"):
        layerwise.eval(tiny_llama, "OwnSTS", out=tmp_path, **asked)
    (tmp_path / "table.parquet").unlink()  # as if the first call had been interrupted
    prompted = layerwise.eval(tiny_llama, "OwnSTS", out=tmp_path, **asked)
    assert prompted.run["forwarded_texts"] == plain.run["forwarded_texts"] > 0
    assert prompted.scores[0].value != plain.scores[0].value


@pytest.mark.parametrize("transform", ["remove_top:2", "remove_top:2+static"])
def test_a_recipe_is_scored_as_its_exported_folder(tiny_llama, root, word_texts, tmp_path, transform):
    """The map is put on vectors as they are read; plain mteb on the plain folder gives the same scores."""
    recipe = Recipe(2, transform=transform, max_length=32)
    table = layerwise.eval(tiny_llama, "all", data_root=root, out=tmp_path / "e", recipes=recipe, fit=word_texts)
    model = layerwise.export(tiny_llama, recipe, tmp_path / "m", fit=word_texts)
    for choice in choose_tasks("all", root):
        with quiet_libraries():
            result = mteb.evaluate(model, scoring.load_task(choice), cache=None, show_progress_bar=False)
        assert table.where(metric=choice.name).scores[0].value == pytest.approx(
            100 * result.task_results[0].get_score(), abs=0.5 if choice.type == "Classification" else 1e-3
        ), choice
    assert {row.transform for row in table} == {transform}


def test_recipes_read_the_vectors_of_an_earlier_evaluation(tiny_llama, root, word_texts, tmp_path):
    first = layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path, tokens="all,no_first", max_length=32)
    recipe = Recipe(1, tokens="no_first", transform="whiten", max_length=32)
    both = {"data_root": root, "out": tmp_path}
    within = layerwise.eval(tiny_llama, "OwnSTS", recipes=recipe, fit="task", **both)
    assert within.run["forwarded_texts"] == 0 and len(within) == 1
    beyond = layerwise.eval(tiny_llama, "OwnSTS", recipes=recipe, fit=word_texts, **both)
    assert 0 < beyond.run["forwarded_texts"] <= len(word_texts)
    assert beyond.scores[0].value != within.scores[0].value
    assert len(LayerTable.load(tmp_path)) == len(first) + 2, "rows of earlier calls stay in the table"
    with pytest.raises(InputError, match="--fit FILE"):
        layerwise.eval(tiny_llama, "OwnSTS", recipes=recipe, **both)


def test_columns_read_at_once_change_no_score(tiny_llama, root, tmp_path, monkeypatch):
    quick = layerwise.eval(tiny_llama, "OwnTopics", data_root=root, out=tmp_path / "a")
    monkeypatch.setattr(scoring, "columns_as_lists", lambda loaded: loaded)
    slow = layerwise.eval(tiny_llama, "OwnTopics", data_root=root, out=tmp_path / "b")
    assert (scores(quick) == scores(slow)).all()


def test_the_tradeoff_marks_layers_that_no_other_beats(tiny_llama, root, tmp_path, capsys):
    layerwise.eval(tiny_llama, "OwnSTS,OwnPairs", data_root=root, out=tmp_path)
    frame = layerwise.lab.tradeoff(tmp_path, repeats=1)
    assert list(frame.columns) == list(tradeoff.COLUMNS) and len(frame) == DEPTH + 2
    for row in frame.itertuples():
        beaten = frame[(frame.score > row.score) & (frame.parameters <= row.parameters)]
        assert row.pareto == beaten.empty or not row.pareto
    assert frame.parameters.is_monotonic_increasing and (frame.latency > 0).all()
    assert frame.loc[frame.score.idxmax()].pareto and frame.iloc[0].pareto
    drawn = json.loads((tmp_path / "tradeoff.json").read_text())["layers"]
    assert [row["layer"] for row in drawn] == list(range(DEPTH + 1)) and {"memory", "latency", "pareto"} < set(drawn[0])
    sts = layerwise.lab.tradeoff(tmp_path, "OwnSTS", repeats=1).score
    pairs = layerwise.lab.tradeoff(tmp_path, "OwnPairs", repeats=1).score
    assert list(frame.score) == pytest.approx(list((sts + pairs) / 2))
    assert main(["lab", "tradeoff", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(frame)
    assert main(["lab", "tradeoff", str(tmp_path), "--score", "nothing"]) == 2
    assert "OwnPairs, OwnSTS, or mean" in capsys.readouterr().err


def test_a_model_in_place_of_a_run_gets_the_commands_that_make_one(tiny_llama, tmp_path, capsys):
    assert main(["lab", "tradeoff", tiny_llama]) == 2
    message = capsys.readouterr().err
    assert f"{tiny_llama} is a model, not an eval run; first run: layerwise eval {tiny_llama} --tasks" in message
    assert message.rstrip().endswith("--out scores, then: layerwise lab tradeoff scores")
    with pytest.raises(InputError, match="no run some/model; if it is a model, first run: layerwise eval some/model"):
        layerwise.lab.tradeoff("some/model")
    with pytest.raises(InputError, match="takes an eval run, not a Network"):
        layerwise.lab.tradeoff(open_network(tiny_llama))


def test_the_tradeoff_shows_how_far_it_is_and_fits_80_columns(tiny_llama, root, tmp_path, capsys, monkeypatch):
    seen = []

    @contextmanager
    def bar(shown, total=None, unit=""):
        seen.append((shown, total, unit))
        yield lambda units, tokens: seen.append(units)

    monkeypatch.setattr(tradeoff, "progress_bar", bar)
    layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path)
    assert main(["lab", "tradeoff", str(tmp_path), "--repeats", "2"]) == 0
    total = seen[0][1]
    assert seen == [(True, total, "passes"), *[1] * total] and total == DEPTH * 3, "as often as it was said"
    printed = capsys.readouterr()
    assert "loading" in printed.err and f"timing {DEPTH} depths" in printed.err
    assert max(map(len, printed.out.splitlines())) <= 80 and printed.out.startswith("tokens all, transform none, ")


def test_several_token_choices_come_of_one_pass(tiny_llama, root, tmp_path):
    table = layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path, tokens="all,no_first", workers=0)
    alone = layerwise.eval(tiny_llama, "OwnSTS", data_root=root, out=tmp_path / "x", tokens="no_first", workers=0)
    without = [s[s.index.get_level_values("tokens") == "no_first"] for s in map(scores, (table, alone))]
    pd.testing.assert_series_equal(*without)


def test_a_text_in_which_no_token_counts_has_a_vector_of_zeros(tiny_llama):
    """A text of one token has no other than the first."""
    texts = ["w1", "w1 w2"]
    both = [np.stack(layerwise.embed(tiny_llama, texts, layers="2", tokens=t).layer_2) for t in ("all", "no_first")]
    assert both[0][0].any() and not both[1][0].any() and not np.allclose(both[0][1], both[1][1])


def test_a_table_that_is_prepared_again_is_scored_anew(tiny_llama, tmp_path):
    """The data sets library caches by folder name: an older table of that name must not be scored for a newer one."""
    rng, values = np.random.default_rng(0), []
    for n in (12, 30):
        sides = {"sentence1": [text(rng, i) for i in range(n)], "sentence2": [text(rng, 2 * i) for i in range(n)]}
        pairs = pd.DataFrame(sides)
        write_task(tmp_path / "root", "Again", "STS", pairs.assign(score=range(n)))
        table = layerwise.eval(tiny_llama, "Again", data_root=tmp_path / "root", out=tmp_path / str(n), layers="2")
        rows = [np.stack(layerwise.embed(tiny_llama, list(pairs[c]), layers="2").layer_2) for c in pairs]
        cosine = (rows[0] * rows[1]).sum(1) / np.linalg.norm(rows[0], axis=1) / np.linalg.norm(rows[1], axis=1)
        from scipy.stats import spearmanr

        assert table.scores[0].value == pytest.approx(100 * spearmanr(cosine, range(n)).statistic, abs=0.5)
        values.append(table.scores[0].value)
    assert values[0] != values[1]


# ---- the store


KIND = VectorKind("model", "float32", 64, (Readout(1), Readout(2)))


def compute(texts):
    return {r: torch.tensor([[float(len(t)), r.layer, ord(t[0])] for t in texts]) for r in KIND.readouts}


def open_store(root, precision="float32"):
    store = VectorStore(root, KIND, precision=precision)

    def fill(parts):
        for name, data in (segment_file(part, compute(part), precision) for part in parts):
            write_atomically(store.folder / name, data)

    store.encode_missing = fill
    return store


def test_the_store_gives_back_what_was_computed_in_any_order(tmp_path):
    store = open_store(tmp_path)
    first = store.vectors(["a", "bb", "a"], Readout(2))
    assert first.tolist() == [[1, 2, 97], [2, 2, 98], [1, 2, 97]]
    assert store.encoded_count == 2
    assert store.vectors(["ccc", "bb"], Readout(1)).tolist() == [[3, 1, 99], [2, 1, 98]]
    assert store.encoded_count == 3
    reader = VectorStore(tmp_path, KIND, None, verify=False)
    assert reader.vectors(["bb", "a"], Readout(1)).tolist() == [[2, 1, 98], [1, 1, 97]]
    with pytest.raises(VectorsMissingError, match="1 texts"):
        reader.vectors(["new"], Readout(1))


@pytest.mark.parametrize(
    "change",
    [{"model": "other"}, {"dtype": "bfloat16"}, {"max_length": 32}, {"template": "query: {text}"}, {"role": "query"},
     {"readouts": (Readout(1), Readout(2, tokens="no_first"))}],
)  # fmt: skip
def test_no_vector_of_one_kind_is_served_for_another(tmp_path, change):
    open_store(tmp_path).vectors(["a"], Readout(1))
    other = VectorStore(tmp_path, VectorKind(**(vars(KIND) | change)), None)
    with pytest.raises(VectorsMissingError):
        other.vectors(["a"], Readout(1))


@pytest.mark.parametrize("damage", [lambda d: d[:-7], lambda d: d[:10], lambda d: b"", lambda d: d[:-1] + b"\x00"])
def test_damaged_segments_are_deleted(tmp_path, damage):
    store = open_store(tmp_path)
    store.vectors(["a", "b"], Readout(1))
    (segment,) = store.segments()
    segment.write_bytes(damage(segment.read_bytes()))
    again = open_store(tmp_path)
    assert not again.segments()
    assert again.vectors(["b"], Readout(1)).tolist() == [[1, 1, 98]]


def test_half_precision_is_stored_apart(tmp_path):
    open_store(tmp_path).vectors(["a"], Readout(1))
    half = open_store(tmp_path, "float16")
    assert half.vectors(["a"], Readout(1)).dtype == np.float32 and half.encoded_count == 1
    with pytest.raises(InputError, match="float32, float16"):
        VectorStore(tmp_path, KIND, precision="int8")


# ---- tasks and data


def test_the_papers_tasks_resolve_by_name_without_network(capsys, tiny_llama):
    chosen = choose_tasks("paper32")
    types = pd.Series([t.type for t in chosen]).value_counts().to_dict()
    assert types == {"Classification": 10, "STS": 9, "Clustering": 6, "Reranking": 4, "PairClassification": 3}
    assert main(["eval", tiny_llama, "--tasks", "paper32", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in PAPER_32) and "32 tasks x 5 readouts" in printed


def test_a_cap_keeps_a_fair_sample_and_says_so(tmp_path):
    table = pd.DataFrame({"sentence1": [f"a {i}" for i in range(300)], "sentence2": "b", "score": range(300)})
    task = write_task(tmp_path, "Own", "STS", table, cap=50)
    kept = pd.read_parquet(tmp_path / "Own" / "default" / "test.parquet")
    shuffled = write_task(tmp_path / "x", "Own", "STS", table.sample(frac=1, random_state=0), cap=50)
    assert set(kept.sentence1) == set(pd.read_parquet(tmp_path / "x/Own/default/test.parquet").sentence1)
    assert kept.score.mean() == pytest.approx(150, abs=45) and task.size == "50 of 300, sampled by hashed id"
    assert shuffled.examples == 50


def test_labels_that_cannot_tell_layers_apart_are_refused(tmp_path):
    """A cap of one text per set made a clustering task with 100 points at every layer."""
    texts = [f"text {i}" for i in range(40)]
    table = pd.DataFrame({"sentences": [texts, texts], "labels": [[i % 4 for i in range(40)]] * 2})
    assert write_task(tmp_path, "Own", "Clustering", table, cap=20).examples == 40
    for cap, found in ((1, "1 label for 1 text"), (2, "2 labels for 2 texts")):
        with pytest.raises(InputError, match=f"Own: set 1 has {found}, so the task cannot tell layers apart"):
            write_task(tmp_path, "Own", "Clustering", table, cap=cap)
    pairs = {"sentence1": texts, "sentence2": texts}
    for kind, column in (("STS", "score"), ("PairClassification", "labels")):
        with pytest.raises(InputError, match=f"{column} is 1 in all 40 rows, so the task cannot"):
            write_task(tmp_path, "Own", kind, pd.DataFrame({**pairs, column: 1}))


def test_tables_that_do_not_fit_are_refused_with_what_they_need(tmp_path):
    with pytest.raises(
        InputError, match="a STS table needs sentence1, sentence2, score; missing sentence2, score, found sentence1"
    ):
        write_task(tmp_path, "Own", "STS", pd.DataFrame({"sentence1": ["a"]}))
    with pytest.raises(InputError, match="needs a train table"):
        write_task(tmp_path, "Own", "Classification", pd.DataFrame({"text": ["a"], "label": [1]}))
    with pytest.raises(InputError, match="positive must contain lists of texts"):
        write_task(tmp_path, "Own", "Retrieval", pd.DataFrame({"query": ["a"], "positive": ["b"], "negative": ["c"]}))
    with pytest.raises(InputError, match="row 1: score must be a number, not 'high'"):
        write_task(tmp_path, "Own", "STS", pd.DataFrame({"sentence1": ["a"], "sentence2": ["b"], "score": ["high"]}))
    with pytest.raises(InputError, match="is not one of Classification"):
        write_task(tmp_path, "Own", "Sorting", pd.DataFrame())
    with pytest.raises(InputError, match="no prepared task"):
        read_root(tmp_path)


def test_unknown_tasks_are_answered_with_those_there_are(root):
    with pytest.raises(InputError, match="it contains OwnClusters, OwnPairs"):
        choose_tasks("Nothing", root)
    with pytest.raises(InputError, match="no task 'Nothing'"):
        choose_tasks("Nothing")


def test_the_command_line_prepares_and_scores(tiny_llama, tmp_path, capsys):
    table = pd.DataFrame({"sentence1": ["w1 w2", "w3", "w4"], "sentence2": ["w1 w3", "w9", "w5"], "score": [5, 0, 3]})
    table.to_csv(tmp_path / "own.csv", index=False)
    root = str(tmp_path / "root")
    assert main(["lab", "data", root, "Own", "--type", "STS", "--test", str(tmp_path / "own.csv")]) == 0
    out = ["--out", str(tmp_path / "out"), "--workers", "0", "--layers", "1,last", "--json"]
    assert main(["eval", tiny_llama, "--tasks", "all", "--data-root", root, *out]) == 0
    record = json.loads(capsys.readouterr().out)
    assert {(s["layer"], s["norm"]) for s in record["scores"]} == {(1, "raw"), (3, "normed")}
    assert main(["eval", tiny_llama, "--tasks", "all", "--data-root", root]) == 2
    assert "needs --out" in capsys.readouterr().err


def test_names_for_mteb():
    assert model_name("org/model") == "org/model"
    assert model_name("/some/where/model") == model_name("./model") == "local/model"
    assert experiment_settings(Recipe(6)) == {"layer": 6}
    assert experiment_settings(Recipe(6, "normed", "no_first")) == {"layer": 6, "norm": "normed", "tokens": "no_first"}


# ---- correlation


def distance_covariance(a, b):
    """Szekely's S1 + S2 - 2 S3, with the triple sum written out: no centred matrices, as the code has."""
    every = range(len(a))
    first = np.mean([abs(a[i] - a[j]) * abs(b[i] - b[j]) for i in every for j in every])
    second = np.mean([abs(a[i] - a[j]) for i in every for j in every])
    second *= np.mean([abs(b[i] - b[j]) for i in every for j in every])
    third = np.mean([abs(a[i] - a[j]) * abs(b[i] - b[k]) for i in every for j in every for k in every])
    return first + second - 2 * third


def test_distance_correlation_is_the_triple_sum():
    rng = np.random.default_rng(0)
    for n in (5, 13, 25):
        a, b = rng.normal(size=n), rng.normal(size=n)
        for other in (b, a**2):
            shared = distance_covariance(a, other)
            true = math.sqrt(shared / math.sqrt(distance_covariance(a, a) * distance_covariance(other, other)))
            assert correlation("distance", a, other) == pytest.approx(true, abs=1e-12)


def table_of(metric, values, **more):
    given = dict(model="m", norm="raw", tokens="all", pooling="mean", rows="raw", n=5)
    return [LayerScore(layer=k, depth=k, metric=metric, value=v, **(given | more)) for k, v in enumerate(values)]


def test_metric_and_task_are_matched_layer_by_layer():
    scan = LayerTable((*table_of("up", range(12)), *table_of("up", range(12), tokens="no_first")))
    scored = LayerTable(tuple(table_of("Task", [math.sqrt(k) for k in range(12)], rows="-")))
    with pytest.warns(UserWarning, match="1 curves have no match .*up raw no_first mean"):
        found = correlations(scan, scored)
    assert len(found) == 1 and found.layers[0] == 12
    assert (found.spearman[0], found.kendall[0]) == pytest.approx((1, 1))
    assert np.isnan(found.spearman_bends_p[0])  # a straight line has no bends


def test_what_does_not_belong_together_is_refused():
    scan = LayerTable(tuple(table_of("up", range(12))))
    scored = LayerTable(tuple(table_of("Task", range(12), rows="-")))
    with pytest.raises(InputError, match="expected a scan and then an eval, got eval and scan"):
        correlations(LayerTable(scored.scores, {"kind": "eval"}), LayerTable(scan.scores, {"kind": "scan"}))
    runs = [{"kind": k, "model": {"name": n, "fingerprint": n}} for k, n in (("scan", "a"), ("eval", "b"))]
    with pytest.raises(InputError, match="the scan is of a, but the eval is of b"):
        correlations(LayerTable(scan.scores, runs[0]), LayerTable(scored.scores, runs[1]))
    constant = LayerTable(tuple(table_of("Task", [1.0] * 12, rows="-")))
    assert correlations(scan, constant)[["spearman", "spearman_bends_p", "distance_bends_p"]].isna().all().all()


def test_few_layers_are_warned_about():
    scan, scored = LayerTable(tuple(table_of("up", range(5)))), LayerTable(tuple(table_of("Task", range(5), rows="-")))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        correlations(scan, scored)
    assert "only 5 layers" in str(warned[0].message)
    with pytest.raises(InputError, match="fewer than four layers in common"):
        correlations(scan, LayerTable(tuple(table_of("Task", range(3), rows="-"))))


# ---- real weights


def without_chat_template(folder, copy):
    """The same model, its tokenizer without the template in which sentence-transformers would wrap the texts."""
    from pathlib import Path

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(copy)
    for name in ("config.json", "model.safetensors"):
        (copy / name).symlink_to(Path(folder) / name)
    return str(copy)


def plain_model(folder, layer, blocks):
    """Mean pooling over a model cut by hand, its final norm taken out: what one layer is, without any of our code."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from torch import nn

    encoder = Transformer(folder, max_seq_length=256)
    owner = encoder.auto_model.get_submodule(blocks.rpartition(".")[0])
    setattr(owner, blocks.rpartition(".")[2], getattr(owner, blocks.rpartition(".")[2])[:layer])
    if hasattr(owner, "norm"):
        owner.norm = nn.Identity()
    encoder.auto_model.config.num_hidden_layers = layer
    return SentenceTransformer(modules=[encoder, Pooling(encoder.auto_model.config.hidden_size, "mean")], device="cpu")


@pytest.mark.parametrize(
    ("name", "blocks", "layers"),
    [
        ("all-minilm-l6-v2", "encoder.layer", (1, 3, 5)),
        pytest.param("smollm2-135m", "layers", (1, 9, 15), marks=pytest.mark.long),
    ],
)
def test_a_layer_scores_as_a_model_cut_at_that_layer(real_model, shared, tmp_path, name, blocks, layers):
    from layerwise.verbs.eval.tasks import make_task

    folder, pairs = real_model(name), pd.read_parquet(shared("data/biosses/test.parquet"))
    write_task(tmp_path / "r", "BIOSSES", "STS", pairs, cap=40)
    options = {"data_root": tmp_path / "r", "max_length": 256, "out": tmp_path / "e", "workers": 0}
    value = {s.layer: s.value for s in layerwise.eval(folder, "BIOSSES", layers=list(layers), **options)}
    (choice,) = choose_tasks("BIOSSES", tmp_path / "r")
    texts = list(pairs.sentence1[:10])
    vectors = layerwise.embed(folder, texts, layers=list(layers))
    bare = without_chat_template(folder, tmp_path / "bare")
    for layer in layers:
        plain = plain_model(bare, layer, blocks)
        mine, theirs = np.stack(vectors[f"layer_{layer}"]), plain.encode(texts)
        assert np.abs(mine - theirs).max() <= 1e-5 * np.abs(theirs).max()
        result = mteb.evaluate(plain, make_task(choice), cache=None, show_progress_bar=False, co2_tracker=False)
        assert value[layer] == pytest.approx(100 * result.task_results[0].get_score(), abs=1e-3)


def test_minilm_has_its_published_score(real_model, shared, tmp_path):
    write_task(tmp_path / "r", "STSBenchmark", "STS", pd.read_parquet(shared("data/stsbenchmark/test.parquet")))
    options = {"data_root": tmp_path / "r", "max_length": 256, "out": tmp_path / "e", "workers": 0}
    table = layerwise.eval(real_model("all-minilm-l6-v2"), "STSBenchmark", layers="last", **options)
    assert table.scores[0].value == pytest.approx(82.03, abs=0.005)

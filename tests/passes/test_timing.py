"""Times: of an exported model against the whole one, and predicted ones of a scan."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from embedders import ship_model
from families import make_model, make_tokenizer, save_byte_model

import layerwise
from layerwise.inputs.timed_texts import timed_texts
from layerwise.models.modules import as_sentence_transformer
from layerwise.models.opening import open_network
from layerwise.passes import timing as ratios
from layerwise.passes.timing import RelativeTime, clock_of, measured, relative_times
from layerwise.runs.exported import time_words
from layerwise.verbs.scan import timing
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan.prepare import forecast_scan, prepare, typical_examples
from layerwise.verbs.scan.timing import Seconds, in_words, predict_seconds

CPU = torch.device("cpu")


def work(seconds):
    """Uses the CPU for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def test_cpu_time_is_counted_in_all_threads_and_waiting_is_not():
    def in_two_threads():
        threads = [threading.Thread(target=work, args=(0.02,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    runs = {"one": lambda: work(0.02), "waits": lambda: (work(0.02), time.sleep(0.05)), "two": in_two_threads}
    clock = clock_of(CPU)
    found = relative_times([measured(name, run, clock) for name, run in runs.items()], "one", repeats=3)
    assert found["one"] == RelativeTime(1.0, 1.0, 1.0)
    assert found["waits"].ratio == pytest.approx(1, rel=0.1) and found["two"].ratio == pytest.approx(2, rel=0.1)


def test_other_processes_do_not_change_a_time():
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        clock = clock_of(CPU)
        runs = {"one": lambda: work(0.02), "three": lambda: work(0.06)}
        found = relative_times([measured(name, run, clock) for name, run in runs.items()], "one", repeats=5)
    finally:
        for process in load:
            process.kill()
            process.wait()
    assert found["three"].ratio == pytest.approx(3, rel=0.1) and not found["three"].unsteady


def test_rounds_that_disagree_are_marked_and_the_first_is_not_counted():
    seconds = iter([9.0, 2.0, 2.0, 3.0, 4.0, 4.0])
    found = relative_times([lambda: {"one": 1.0}, lambda: {"other": next(seconds)}], "one", repeats=5)["other"]
    assert found == RelativeTime(3.0, 2.0, 4.0) and found.unsteady
    assert (
        time_words([found.to_record(3)])
        == "3.00 [unsteady: 2.00 to 4.00] of the whole model's on short texts (3 tokens)"
    )
    steady = [RelativeTime(0.581, 0.57, 0.6).to_record(3), RelativeTime(0.0123, 0.012, 0.0125).to_record(270)]
    assert time_words(steady) == "0.58 of the whole model's on short texts (3 tokens), 0.012 (270)"
    assert time_words([RelativeTime(0.5, 0.5, 0.5).to_record(None)]) == "0.50 of the whole model's"


def test_rounds_stop_after_a_few_seconds_and_short_calls_are_repeated(monkeypatch):
    monkeypatch.setattr(ratios, "MOST_ROUNDS", 11)
    monkeypatch.setattr(ratios, "CALL_SECONDS", 1.0)
    calls = []

    def short():
        calls.append(0)
        return {"one": 0.3}

    relative_times([short], "one")
    assert len(calls) == 2 + 11 * 4, "two to see how long it takes, and four in each of the rounds"
    calls.clear()
    monkeypatch.setattr(ratios, "SECONDS", 0.0)
    relative_times([short], "one")
    assert len(calls) == 2 + 3 * 4


def test_timed_texts_have_the_lengths_that_are_stated(tmp_path):
    words = open_network((make_model("llama"), make_tokenizer())).tokenizer
    made = timed_texts(words, ["w1 w2", "w3 w4 w5 w6 w7"], 1000)
    assert {length: len(texts) for length, texts in made.items()} == {3: 32, 20: 32, 270: 2}
    assert {len(text.split()) for text in made[270]} == {270}
    assert list(timed_texts(words, ["w1 w2"], 12)) == [3, 12] and list(timed_texts(words, [" "], 2)) == [2]
    bytewise = open_network(save_byte_model(tmp_path, 1, 300)).tokenizer
    assert list(timed_texts(bytewise, ["characters"], 1000)) == [3, 20, 270], "a word is longer than three tokens"


@pytest.mark.parametrize("shipped", [True, False])
def test_the_whole_model_is_timed_as_plain_sentence_transformers_runs_it(tmp_path, word_texts, shipped):
    """With all its blocks and without copying them; the vectors are those of the model as shipped, or mean pooling."""
    module = make_model("bert")
    folder = ship_model(tmp_path / "m", module, prompts={"query": "w3 "}, default="query") if shipped else None
    network = open_network(folder or (module, make_tokenizer()))
    model = as_sentence_transformer(network, 24)
    assert {id(weight) for weight in network.module.parameters()} <= {id(weight) for weight in model.parameters()}
    options = {} if shipped else {"pooling": "mean", "norm": "raw"}
    expected = layerwise.embed(network, word_texts, layers="last" if shipped else "3", max_length=24, **options)
    assert model.encode(word_texts) == pytest.approx(np.stack(expected.iloc[:, -1]), abs=1e-5)


def predicted(network, texts, **options):
    plan, source, info = prepare(ScanOptions(network, texts, **options), threads=1)
    return predict_seconds(network, plan, source, forecast_scan(network, plan, source, info))


def test_seconds_are_those_of_slow_batches_and_slow_scores(tiny_llama, word_texts, monkeypatch):
    """A pass that takes 1 ms per token and scores that take 20 ms per layer."""
    network, texts = open_network(tiny_llama), word_texts * 20
    real_shard, real_scores = timing.scan_shard, timing.layer_scores
    now = 0.0  # of a clock that only these functions move, so that a busy machine changes nothing

    def slow_shard(network, plan, origin, examples, on_batch):
        nonlocal now
        state, prompts = real_shard(network, plan, origin, examples, on_batch)
        now += 0.001 * state.facts.tokens
        return state, prompts

    def slow_scores(*call):
        nonlocal now
        now += 0.02
        return real_scores(*call)

    monkeypatch.setattr(timing, "scan_shard", slow_shard)
    monkeypatch.setattr(timing, "layer_scores", slow_scores)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now))
    found = predicted(network, texts, batch_tokens=128)
    tokens = layerwise.scan(network, texts).run["data"]["tokens"]
    assert found.forward == pytest.approx(0.001 * tokens, rel=0.1)
    assert found.scoring == pytest.approx(0.02 * 4) and found.timed < len(texts)


def test_views_are_part_of_the_time_of_a_token(tiny_llama, word_texts, monkeypatch):
    counted = []
    real = timing.scan_shard
    monkeypatch.setattr(timing, "scan_shard", lambda *call: counted.append(len(call[3])) or real(*call))
    network = open_network(tiny_llama)
    predicted(network, word_texts * 9, batch_tokens=128)
    predicted(network, word_texts * 9, batch_tokens=128, metrics="lidar")
    assert counted[3] < counted[1] / 5, "16 views fill the same batches with fewer examples"


def test_examples_are_typical_and_not_the_first():
    texts = layerwise.texts([f"text {number}" for number in range(1000)])
    chosen = typical_examples(texts, 50)
    places = [int(example.text.split()[1]) for example in chosen]
    assert len(set(places)) == 50 and 300 < sum(places) / 50 < 700
    assert [example.id for example in typical_examples(texts, 50)] == [example.id for example in chosen]


def test_times_are_given_in_the_unit_that_fits():
    found = [in_words(seconds) for seconds in (0.53, 42.2, 80, 95, 600, 5500)]
    assert found == ["0.5 seconds", "42 seconds", "80 seconds", "1.6 minutes", "10.0 minutes", "1.5 hours"]
    assert "about 3.0 seconds" in Seconds(2, 1, 8).line() and "8 timed examples" in Seconds(2, 1, 8).line()

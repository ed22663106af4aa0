"""The predicted time of a scan: what it is made of, and that it follows what is slow."""

from types import SimpleNamespace

import pytest

import layerwise
from layerwise.models.opening import open_network
from layerwise.options.scan import ScanOptions
from layerwise.sweep import timing
from layerwise.sweep.prepare import forecast_scan, prepare, typical_examples
from layerwise.sweep.timing import Seconds, in_words, predict_seconds


def predicted(network, texts, **options):
    plan, source, info = prepare(network, texts, ScanOptions(**options), threads=1)
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

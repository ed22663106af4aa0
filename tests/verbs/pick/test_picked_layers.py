"""The table of layers behind a pick: complete, saved and read again, within 80 columns, with measured times."""

import json
import re
import shlex
import time
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from families import make_model, make_tokenizer
from made_runs import scan_table

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.core.options import option_specs
from layerwise.core.recipe import Recipe
from layerwise.models.opening import open_network
from layerwise.passes.timing import RelativeTime
from layerwise.runs.identity import ModelRef
from layerwise.verbs.export.backends.sentence_transformers.routes import choose_route
from layerwise.verbs.pick.candidates import compute_probe_vectors, layer_candidates, score_candidates
from layerwise.verbs.pick.decision import Gain, difference
from layerwise.verbs.pick.labels import label_probe
from layerwise.verbs.pick.layer_times import relative_layer_times
from layerwise.verbs.pick.options import PickOptions
from layerwise.verbs.pick.picked_layers import MOST_ROWS, rows_to_show
from layerwise.verbs.pick.probes import Probe
from layerwise.verbs.pick.result import Pick, PickedLayer
from layerwise.verbs.pick.run import Rulebook, default_rulebook, exported_blocks

WEIGHTS = {"pairs": 1.0, "paraphrase": 1.0}


def made_up(layers=30, chosen=9, alike=(1, 8), transform="none", **changes):
    """A pick of a model with so many layers."""
    rows = [
        PickedLayer(k, transform, {"pairs": 80.0 + k, "paraphrase": 50.0}, Gain(-1.0 * k, 20), k / layers,
                    False, k in (*alike, chosen))
        for k in range(layers + 1)
    ]  # fmt: skip
    recipe, last = Recipe(chosen, transform=transform), Recipe(layers, "normed")
    found = Pick(
        ModelRef("m", device="cpu"), recipe, last, "rule", ("why",), layers_alike=tuple(alike),
        gain=Gain(8.2, 2.0), judged_on="126 bundled test sentences", layers=tuple(rows),
    )  # fmt: skip
    return replace(found, **changes)


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.mark.parametrize("family", ["llama", "albert"])  # albert calls one block over and over
def test_the_time_of_a_layer_is_that_of_the_blocks_below_it(family):
    network = open_network((make_model(family), make_tokenizer()))
    quick = relative_layer_times(network, ["w1 w2 w3"] * 20, "", 64)
    assert list(quick) == [3, 20, 64]
    for times in quick.values():
        shares = [time.ratio for time in times]
        assert len(shares) == network.depth + 1 and shares == sorted(shares) and 0 < shares[0] and shares[-1] <= 1
    calls = []

    def slow(*_):
        calls.append(0)
        if len(calls) % network.depth == 2:  # the second block of a pass
            busy(0.2)

    for block in network.structure.blocks:
        block.register_forward_pre_hook(slow)
    steps = np.diff([time.ratio for time in relative_layer_times(network, ["w1 w2 w3"] * 20, "", 64)[20]])
    assert steps.argmax() == 1 and steps[1] > 0.8


def test_a_template_takes_time_above_all_on_short_texts(tiny_llama):
    network = open_network(tiny_llama)

    def slow(module, inputs, options):
        states = inputs[0] if inputs else options["hidden_states"]
        busy(1e-4 * states.shape[1])  # by the length of the batch, whatever else the model does

    for block in network.structure.blocks:
        block.register_forward_pre_hook(slow, with_kwargs=True)
    template = "w1 w2 w3 w4 w5 w6 {text} w7 w8 w9"
    times = relative_layer_times(network, ["w1 w2 w3"] * 20, template, 64)
    assert list(times) == [3, 20, 55], "the template is part of the longest input"
    short, medium, long = (times[tokens][-1].ratio for tokens in times)
    assert short > 1.4 and short > medium > long > 0.9


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_the_times_are_those_of_the_blocks_that_the_default_export_keeps(family):
    network = open_network((make_model(family), make_tokenizer()))
    norms = ["raw", *(["normed"] if network.has_norm else [])]
    for layer, norm in ((layer, norm) for layer in range(1, network.depth + 1) for norm in norms):
        assert exported_blocks(network, Recipe(layer, norm)) == choose_route(network, layer, norm, "portable").blocks


def test_what_pick_says_about_time_is_in_its_table_and_its_sentences(reading_llama, texts, tmp_path, monkeypatch):
    def times(network, texts, template, max_length):
        shares = [RelativeTime(0.3 * i + 0.1, 0.3 * i + 0.1, 0.3 * i + (0.5 if i == 3 else 0.1)) for i in range(4)]
        return {tokens: shares for tokens in (3, 20, 60)}

    monkeypatch.setattr("layerwise.verbs.pick.run.relative_layer_times", times)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", takes_best)
    found = layerwise.pick(reading_llama, texts, max_length=64)
    assert not found.keep_last
    rows = {row.layer: row for row in found.layers[:-1]}
    chosen = rows[found.recipe.layer]
    assert f"time of the default export: {chosen.relative_time:.2f}" in " ".join(found.why)
    assert [rows[layer].relative_time for layer in sorted(rows)[:2]] == pytest.approx([0.4, 0.7]), "one block more"
    assert found.layers[-1].relative_time == 1 and not found.layers[-1].unsteady_time
    assert rows[2].unsteady_time and "1.00?" in repr(found) and "?: its repeats disagreed" in repr(found)
    assert Pick.load(found.save(tmp_path / "p").parent).layers == found.layers


@pytest.fixture(scope="module")
def texts():
    return [" ".join(f"w{(i * i + 7 * j) % 89}" for j in range(3 + i % 27)) for i in range(43)]


def test_the_table_has_the_scores_of_every_layer_with_the_chosen_map(tiny_llama, texts, monkeypatch):
    network, weights = open_network(tiny_llama), {"first": 1.0, "second": 3.0}
    monkeypatch.setattr(
        "layerwise.verbs.pick.one_model.require_readable", lambda *_: None
    )  # bundled words are unknown to it
    probes = [Probe(name, tuple(texts[:20]), lambda rows, i=i: rows[:, i]) for i, name in enumerate(weights)]
    monkeypatch.setattr("layerwise.verbs.pick.run.proxy_probes", lambda **_: probes)
    for book, mapped in ((keeps_last(), False), (takes_best(), True)):
        monkeypatch.setattr(
            "layerwise.verbs.pick.run.default_rulebook", lambda book=book: replace(book, weights=weights)
        )
        found = layerwise.pick(network, texts, max_length=32)
        assert (found.recipe.transform != "none") == mapped != found.keep_last
        transform = found.recipe.transform.removesuffix("+static")
        candidates = [*layer_candidates(network, transforms=[transform]), found.last]
        trial = compute_probe_vectors(network, candidates, probes, texts if mapped else [], max_length=32)
        scored = score_candidates(trial, candidates)
        expected = scored if mapped else scored[:-1]
        assert [(row.layer, row.transform) for row in found.layers] == [
            (s.recipe.layer, s.recipe.transform) for s in expected
        ]
        for row, one in zip(found.layers, expected, strict=True):
            assert row.scores == pytest.approx({name: 100 * one.mean(name) for name in weights}, abs=1e-3)
            gap = difference(one, scored[-1], weights)
            assert (row.gain.mean, row.gain.error) == pytest.approx((gap.mean, gap.error), abs=1e-3)
        assert found.layers[-1].gain.mean == 0 and found.layers[-1].relative_time == 1
        alike = {row.layer for row in found.layers if row.same_within_noise}
        assert alike == {found.recipe.layer, *found.layers_alike}


def test_a_saved_pick_is_read_again_with_everything(reading_llama, texts, tmp_path):
    for place, options in enumerate(({}, {"prefer": "fast"}, {"layer_only": True, "prefer": "fast"})):
        found = layerwise.pick(reading_llama, texts, max_length=32, **options)
        found.save(tmp_path / str(place))
        again = Pick.load(tmp_path / str(place))
        assert (
            again == found and again.keep_last == found.keep_last and again.prefer == options.get("prefer", "quality")
        )
        assert repr(again) == repr(found)
        record = json.loads((tmp_path / str(place) / "pick.json").read_text())
        assert record["schema_version"] == 1 and len(record["layers"]) == len(found.layers) >= 4
        assert {"mean", "low", "high"} <= set(record["layers"][0]["gain"]) and record["prefer"] == found.prefer


@pytest.mark.parametrize(
    ("change", "named"),
    [({"layers": [{"layer": 1}]}, r"layers\[0\]"), ({"gain": {"mean": 1.0}}, "gain"), ({"prefer": "slow"}, "slow"),
     ({"layers": [{"layer": 1, "transform": "none", "scores": {"p": "x"}, "gain": {}}]}, "score")],
)  # fmt: skip
def test_a_damaged_table_is_an_error_that_names_it(change, named, tmp_path):
    (tmp_path / "pick.json").write_text(json.dumps(made_up().to_dict() | {"schema_version": 1} | change))
    with pytest.raises(RunError, match=f"pick.json.*{named}"):
        Pick.load(tmp_path)


@pytest.mark.parametrize("layers", [4, 12, 30, 96])
@pytest.mark.parametrize("transform", ["none", "remove_top:3+static"])
def test_the_answer_fits_eighty_columns(layers, transform):
    found = made_up(layers, 2, range(3, layers, 2), transform)
    assert max(map(len, found.describe("").splitlines())) <= 80
    scores = {"pairs": 100.0, "paraphrase": 100.0, "labels": 100.0}
    wide = [replace(row, scores=scores, gain=Gain(-55.5, 22.2)) for row in found.layers]
    assert max(map(len, replace(found, layers=tuple(wide)).describe("").splitlines())) <= 80


def test_a_deep_model_shows_some_of_its_layers_and_says_so():
    found = made_up(96, 41, (3, 40, 42))
    shown = [row.layer for row in rows_to_show(found.layers, 41)]
    assert {0, 3, 40, 41, 42, 96} <= set(shown) and len(shown) <= MOST_ROWS
    assert f"{len(shown)} of 97 rows are shown" in repr(found)
    assert found._repr_html_().count("<tr>") > 97, "a notebook shows all"
    many = made_up(96, 41, [k for k in range(96) if k != 41])
    shown = [row.layer for row in rows_to_show(many.layers, 41)]
    assert {41, 96} <= set(shown) and len(shown) <= MOST_ROWS
    few = made_up(12, 4)
    assert rows_to_show(few.layers, 4) == list(few.layers) and "rows are shown" not in repr(few)


def test_the_evidence_is_named():
    printed = " ".join(repr(made_up()).split())
    assert "on 126 bundled test sentences: +8.2 points over the last layer (95 %: 4.3 to 12.1)" in printed
    assert "layers that score the same within noise: 1, 8 (--prefer fast takes the lowest)" in printed
    assert "--prefer fast" not in repr(made_up(alike=(10,))), "no lower layer scores the same"
    assert "chance: 50" in printed and "CPU time of the layer's default export on texts of 20 tokens" in printed


def test_an_interval_that_just_misses_zero_is_not_printed_as_zero():
    assert str(Gain(-1.25, 0.62)) == "-1.2 (-2.5 to -0.03)"
    assert str(Gain(-0.01, 1.0)) == "+0.0 (-2.0 to 1.9)"


@pytest.mark.parametrize("mode", ["portable", "compact"])
def test_the_blocks_that_an_export_removes_are_those_that_pick_names(mode, tiny_llama, texts, tmp_path):
    layerwise.scan(tiny_llama, texts, metrics="curvature", out=tmp_path / "run")
    found = layerwise.pick(tmp_path / "run", rule="depth:33%")
    (named,) = re.findall(r"2 of 3 blocks are not needed; the default export removes (\d) of them, --mode compact (\d)",
                          " ".join(repr(found).split()))  # fmt: skip
    layerwise.export(tiny_llama, found, tmp_path / "small", mode=mode)
    blocks = json.loads((tmp_path / "small" / "config.json").read_text())["num_hidden_layers"]
    assert 3 - blocks == int(named[("portable", "compact").index(mode)])
    assert found.to_dict()["saving"] == {"blocks": "67 %", "blocks removed by a portable export": "33 %"}


def test_keeping_the_last_layer_offers_no_export_but_a_faster_layer():
    found = made_up(12, 12, (), gain=Gain(0.0, 0.0), recipe=Recipe(12, "normed"))
    assert found.keep_last and "layerwise.export" not in repr(found)
    assert repr(found).endswith(
        'next: keep using m as it is; if speed matters more: pick(..., prefer="fast") or layerwise.shrink("m", texts, '
        '"small")'
    )
    assert repr(replace(found, prefer="fast")).endswith(
        'next: keep using m as it is; if speed matters more: layerwise.shrink("m", texts, "small")'
    )


def test_the_command_that_is_printed_last_makes_the_export(reading_llama, texts, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", takes_best)
    pd.DataFrame({"words": texts}).to_csv("my texts.csv", index=False)
    own = ["--fit", "my texts.csv", "--max-length", "32", "--column", "words"]
    assert main(["pick", reading_llama, *own, "--save", "my run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == "next:"
    command = shlex.split(printed[-1])
    assert command == ["layerwise", "export", reading_llama, "--layer", "my run:auto", "--out", "embedder"]
    assert main(command[1:]) == 0 and (tmp_path / "embedder" / "modules.json").exists()
    capsys.readouterr()
    assert main(["pick", reading_llama, *own]) == 0
    assert "next: add --save run to this command, then:" in capsys.readouterr().out
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", keeps_last)
    assert main(["pick", reading_llama, *own, "--layer-only"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2] == "or, for similar vectors with fewer blocks:"
    words = ["layerwise", "shrink", reading_llama, "--data", "my texts.csv", "--column", "words", "--out", "small"]
    assert shlex.split(printed[-1]) == words
    printed = printed[:-2]
    assert printed[-2] == f"next: keep using {reading_llama} as it is; if speed matters more:"
    assert shlex.split(printed[-1]) == [
        "layerwise",
        "pick",
        reading_llama,
        *own[:2],
        "--layer-only",
        *own[2:],
        "--prefer",
        "fast",
    ]
    assert main(shlex.split(printed[-1])[1:]) == 0


def keeps_last():
    return Rulebook("cautious", WEIGHTS, ("none",), 1000)


def takes_best():
    return Rulebook("bold", WEIGHTS, ("none", "whiten"), -1000)


def test_fast_where_nothing_is_alike_keeps_the_last_layer_and_says_so(reading_llama, texts, monkeypatch):
    def score(rows):
        return np.full(9, rows.var())  # the last layer, behind the final norm, has by far the longest vectors

    probe = Probe("long", tuple(texts), score)
    monkeypatch.setattr("layerwise.verbs.pick.run.proxy_probes", lambda **_: [probe])
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: replace(keeps_last(), weights={"long": 1}))
    found = layerwise.pick(reading_llama, texts, prefer="fast", layer_only=True, max_length=32)
    assert found.keep_last and found.layers_alike == ()
    assert any("no lower layer scores the same within noise" in reason for reason in found.why)


def test_fast_can_be_exported_and_explains_what_it_risks(reading_llama, texts, tmp_path, monkeypatch):
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", keeps_last)
    quality = layerwise.pick(reading_llama, texts, layer_only=True, max_length=32)
    fast = layerwise.pick(reading_llama, texts, layer_only=True, max_length=32, prefer="fast")
    assert quality.keep_last and quality.layers_alike, "random layers are alike on the bundled sentences"
    assert fast.recipe.layer == min(quality.layers_alike) and not fast.keep_last
    assert any(reason.startswith(f"prefer fast: layer {fast.recipe.layer} is the lowest") for reason in fast.why)
    assert any("126 bundled test sentences cannot show small losses" in reason for reason in fast.why)
    fast.save(tmp_path / "run")
    layerwise.export(reading_llama, Pick.load(tmp_path / "run"), tmp_path / "small")
    assert json.loads((tmp_path / "small" / "layerwise.json").read_text())["recipe"]["layer"] == fast.recipe.layer


UNUSED_BY_A_RULE = {
    "fit": "texts.txt", "labels": "does-not-exist.csv", "pairs": "neither.csv", "language": "de", "prefer": "fast",
    "templates": "prompteol", "layer_only": True, "static": False, "servable": True, "dims": 8, "compare_static": True,
    "early_stop": False, "model": "other", "max_length": 9, "seed": 3, "export": "made",
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSED_BY_A_RULE)
def test_a_rule_refuses_options_that_it_does_not_use(name):
    with pytest.raises(InputError, match=f"makes no use of {name}: leave that out, or leave rule="):
        layerwise.pick(scan_table(), rule="depth:50%", **{name: UNUSED_BY_A_RULE[name]})


def test_every_option_of_pick_is_used_by_a_rule_or_refused(tmp_path, capsys):
    assert {spec.name for spec in option_specs(PickOptions)} == {"run", "rule", "progress", *UNUSED_BY_A_RULE}
    labels = pd.DataFrame({"text": ["a"], "label": ["b"]})
    with pytest.raises(InputError, match="makes no use of fit, labels: "):
        layerwise.pick(scan_table(), ["a text"], labels=labels, rule="last")
    scan_table().save(tmp_path)
    assert main(["pick", str(tmp_path), "--rule", "last", "--column", "body"]) == 2
    assert "--column names a column of --fit" in capsys.readouterr().err


def test_a_layer_alone_is_chosen_without_running_over_the_own_texts(reading_llama, texts, monkeypatch):
    passes = []

    def bar(shown, total=None, unit=""):
        passes.append((shown, total, unit))
        return nullcontext(lambda *_: None)

    book = Rulebook("test", WEIGHTS, ("none", "remove_top:3", "remove_top:8", "whiten"), 2)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: book)
    monkeypatch.setattr("layerwise.verbs.pick.candidates.progress_bar", bar)
    layerwise.pick(reading_llama, texts, layer_only=True, max_length=32)
    layerwise.pick(reading_llama, texts, max_length=32, progress=True)
    alone, recipes = (False, 504, "texts"), 4
    assert passes == [alone, (False, recipes, "recipes"), (True, 504 + 43, "texts"), (True, 4 * recipes, "recipes")]


def test_a_class_with_one_text_is_left_out_and_named(reading_llama, texts):
    table = pd.DataFrame({"text": texts[:21], "label": ["x", "y"] * 10 + ["lonely"]})
    with pytest.warns(UserWarning, match="classes with only one text are left out of the labels: 'lonely'"):
        probe = label_probe(table)
    assert probe.units == 20 and texts[20] not in probe.texts
    rows = np.random.default_rng(0).normal(size=(20, 5))
    assert probe.score(rows) == pytest.approx(label_probe(table[:20]).score(rows))
    with pytest.raises(InputError, match="at least two classes with two texts each; these have lonely: 1, x: 19"):
        label_probe(table[1:].assign(label=["x"] * 19 + ["lonely"]))
    with pytest.warns(UserWarning, match="lonely") as caught:
        found = layerwise.pick(reading_llama, texts, labels=table, max_length=32)
    assert len(caught) == 1 and "126 bundled test sentences and 20 labels of yours" == found.judged_on
    assert set(found.layers[0].scores) == {*default_rulebook().weights, "labels"}

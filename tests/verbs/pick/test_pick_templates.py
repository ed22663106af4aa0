"""pick with templates and fewer dimensions: which models get them, what they cost, and what is said about it."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from families import make_model, make_tokenizer
from transformers import PreTrainedTokenizerFast

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Readout, Recipe
from layerwise.core.templates import TEMPLATES
from layerwise.inputs.source import Example
from layerwise.models.opening import open_network
from layerwise.passes.timing import RelativeTime
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.identity import ModelRef
from layerwise.verbs.pick import candidates, run
from layerwise.verbs.pick.candidates import ScoredRecipe, compute_probe_vectors, layer_candidates, template_candidates
from layerwise.verbs.pick.decision import decide
from layerwise.verbs.pick.options import PickOptions, templates_to_try
from layerwise.verbs.pick.picked_layers import picked_layers
from layerwise.verbs.pick.probes import Probe
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.run import Rulebook, default_rulebook, pick_recipe, usable_templates
from layerwise.verbs.report.repeat_commands import pick_command

TEMPLATE = "w5 {text} w6 w7"
BOOK = Rulebook("test", {"deep": 1}, ("none",), -1000, True, (TEMPLATE,), ("center",))


def causal(folder):
    """The model of that folder as a causal language model."""
    network = open_network(folder)
    network.module.config.architectures = ["LlamaForCausalLM"]
    return network


def deep(rows):
    """Likes centred vectors, and long ones. Only templates have a map here, so one of them is chosen."""
    return np.full(9, np.log(rows.var()) if np.abs(rows.mean(axis=0)).max() < 1e-5 else -20)


@pytest.fixture
def pick_in_template(tiny_llama, word_texts, monkeypatch):
    """A function that picks with BOOK on so many texts; and the templates of the passes that it made."""
    network, passes = causal(tiny_llama), []

    def recorded(*args, **options):
        passes.append(options["template"])
        return pooled_vectors(*args, **options)

    monkeypatch.setattr(candidates, "pooled_vectors", recorded)

    def pick(count=40, book=BOOK, **options):
        passes.clear()
        texts = word_texts[:count]
        monkeypatch.setattr(run, "proxy_probes", lambda **_: [Probe("deep", tuple(texts), deep)])
        return pick_recipe(network, texts, max_length=32, rulebook=book, **options)

    return pick, passes


def test_a_template_is_chosen_with_the_mean_beside_the_last_token(pick_in_template):
    pick, passes = pick_in_template
    found = pick()
    expected = Recipe(found.recipe.layer, found.recipe.norm, pooling="last", template=TEMPLATE, max_length=32)
    assert found.recipe == replace(expected, transform="center+mean") and found.recipe.layer > 0
    assert found.fitted.recipe == found.recipe and found.fitted.combined_map.weight.shape == (64, 64)
    assert passes == ["", TEMPLATE], "one pass per template"
    sentences = " ".join(found.why)
    assert (
        "the mean over all tokens is appended to the last token's vector" in sentences and "64 dimensions" in sentences
    )
    assert f"every text is put into the template {TEMPLATE!r}, which adds 3 tokens" in sentences


def test_without_templates_there_is_no_other_pass(pick_in_template):
    pick, passes = pick_in_template
    found = pick(templates=())
    assert passes == [""] and found.recipe.template == "" and found.recipe.transform == "none"
    other = pick(templates=("w8 {text}",))
    assert passes == ["", "w8 {text}"] and other.recipe.template == "w8 {text}"
    alone = pick(layer_only=True)
    assert passes == [""] and alone.recipe.transform == "none" and alone.recipe.template == ""
    pick(layer_only=True, templates=(TEMPLATE,))
    assert passes == ["", TEMPLATE], "unless one is given"


def test_what_fewer_dimensions_cost_is_measured(pick_in_template, tiny_llama, word_texts):
    pick, _ = pick_in_template
    whole, reduced = pick(), pick(dims=3)
    assert whole.recipe.transform == "center+mean" and reduced.recipe.transform == "center+mean@3"
    assert "principal directions" not in " ".join(whole.why)
    readouts = [readout for readout, _ in reduced.recipe.parts]
    assert [readout.pooling for readout in readouts] == ["last", "mean"]
    examples = [Example(str(i), text) for i, text in enumerate(word_texts[:40])]
    rows = pooled_vectors(open_network(tiny_llama), examples, readouts, max_length=32, template=TEMPLATE)
    both = torch.cat([rows[readout] for readout in readouts], dim=1).double()
    scores = [deep(found.fitted.combined_map(both).numpy())[0] for found in (reduced, whole)]
    loss = f"{100 * (scores[0] - scores[1]):+.1f}"
    sentence = f"the first 3 principal directions of 64 dimensions are kept: {loss} ("
    (said,) = [reason for reason in reduced.why if "principal directions" in reason]
    assert said.startswith(sentence) and said.endswith("on the same sentences")
    assert reduced.gain == whole.gain, "the probes choose the layer before dimensions are left out"


def test_dimensions_of_a_layer_without_a_map_are_centred(pick_in_template):
    pick, _ = pick_in_template
    found = pick(templates=(), dims=3)
    assert found.recipe.transform == "center@3" and found.fitted.combined_map.weight.shape == (3, 32)
    kept = pick(book=replace(BOOK, margin=1e6), dims=3)
    assert kept.keep_last and kept.recipe.transform == "none", "the last layer is kept as it is"


def test_dimensions_that_the_texts_cannot_show_are_refused_before_any_pass(pick_in_template, tiny_llama, word_texts):
    pick, passes = pick_in_template
    with pytest.raises(InputError, match="40 dimensions need more than 40 texts to fit, got 40"):
        pick(dims=40)
    assert passes == []
    with pytest.raises(InputError, match="layer_only tries no linear map, and dims needs one"):
        layerwise.pick(tiny_llama, word_texts, layer_only=True, dims=8)
    with pytest.raises(InputError, match="dims must be at least 1, not 0"):
        layerwise.pick(tiny_llama, word_texts, dims=0)


def test_an_exported_pick_has_the_vectors_that_were_chosen(pick_in_template, tiny_llama, word_texts, tmp_path):
    pick, _ = pick_in_template
    found = pick()
    network = open_network(tiny_llama)
    model = layerwise.export(network, found, tmp_path / "m", texts=word_texts)
    readouts = [Readout(found.recipe.layer, found.recipe.norm, pooling=pooling) for pooling in ("last", "mean")]
    examples = [Example(str(i), text) for i, text in enumerate(word_texts)]
    rows = pooled_vectors(network, examples, readouts, max_length=32, template=TEMPLATE)
    expected = found.fitted.combined_map(torch.cat([rows[readout] for readout in readouts], dim=1)).numpy()
    assert model.encode(word_texts, show_progress_bar=False) == pytest.approx(expected, abs=1e-4)


# ---- which models get a template


def test_only_a_causal_language_model_without_pooling_of_its_own_gets_templates(tiny_llama, tiny_bert, tmp_path):
    names = ["prompteol"]
    assert usable_templates(causal(tiny_llama), names, 64) == names
    assert usable_templates(open_network(tiny_llama), names, 64) == [], "weights without the head of a language model"
    assert usable_templates(open_network(tiny_bert), names, 64) == [], "BERT is read by the mean"
    layerwise.export(tiny_llama, 2, tmp_path / "m")
    assert usable_templates(causal(str(tmp_path / "m")), names, 64) == [], "an embedding model"


def test_a_tokenizer_that_cannot_add_text_after_the_input_gets_none():
    slow = make_tokenizer()
    slow.__class__ = type("Slow", (PreTrainedTokenizerFast,), {"is_fast": False})
    network = open_network((make_model("llama"), slow))
    network.module.config.architectures = ["LlamaForCausalLM"]
    assert usable_templates(network, ["prompteol"], 64) == []
    assert usable_templates(network, ["w5 {text}"], 64) == ["w5 {text}"], "text before the input is no problem"


def test_a_template_that_leaves_no_room_for_texts_is_not_tried(tiny_llama):
    network = causal(tiny_llama)
    before, after = (len(make_tokenizer()(part)["input_ids"]) for part in TEMPLATES["prompteol"].split("{text}"))
    added = before + after
    assert added > 5
    assert usable_templates(network, ["prompteol"], 2 * added) == ["prompteol"]
    assert usable_templates(network, ["prompteol"], 2 * added - 1) == []


def test_candidates_in_a_template_are_the_last_tokens_of_every_layer_but_the_first(tiny_llama):
    found = template_candidates(open_network(tiny_llama), [TEMPLATE, "about"], ["center", "whiten"])
    assert len(found) == len(set(found)) == 2 * 2 * 3
    assert {(r.layer, r.norm) for r in found} == {(1, "raw"), (2, "raw"), (3, "raw")}
    assert {(r.template, r.transform) for r in found} == {
        (template, name) for template in (TEMPLATE, TEMPLATES["about"]) for name in ("center", "whiten")
    }
    assert {(r.pooling, r.tokens) for r in found} == {("last", "all")}


def test_the_vectors_of_a_template_are_computed_in_one_pass(tiny_llama, word_texts, monkeypatch):
    network, calls = open_network(tiny_llama), []

    def recorded(network, examples, readouts, **options):
        calls.append((options["template"], len(examples), set(readouts)))
        return pooled_vectors(network, examples, readouts, **options)

    monkeypatch.setattr(candidates, "pooled_vectors", recorded)
    recipes = [
        Recipe(1), Recipe(1, transform="center"), Recipe(2, transform="center+static"),
        Recipe(3, pooling="last", template=TEMPLATE, transform="center+mean"),
        Recipe(3, pooling="last", template=TEMPLATE),
    ]  # fmt: skip
    probe = Probe("deep", tuple(word_texts[:6]), deep)
    trial = compute_probe_vectors(network, recipes, [probe], word_texts[3:9], max_length=32)
    assert calls == [
        ("", 9, {Readout(1), Readout(2), Readout(0)}),
        (TEMPLATE, 9, {Readout(3, pooling="last"), Readout(3, pooling="mean")}),
    ]
    assert set(trial.vectors) == {"", TEMPLATE}


# ---- the table of layers


@pytest.mark.parametrize("transform", ["center", "none"])
@pytest.mark.parametrize(("chosen", "alike"), [(3, (2,)), (2, (3,))])
def test_the_table_has_one_row_per_layer_and_the_last_layer_as_it_is(transform, chosen, alike):
    scores = [0.6, 0.8 if chosen == 3 else 0.82, 0.81]
    noise = np.linspace(-0.1, 0.1, 20)
    tried = [
        ScoredRecipe(Recipe(i, pooling="last", transform=transform, template=TEMPLATE), {"p": score + i * noise})
        for i, score in enumerate(scores, start=1)
    ]
    last = ScoredRecipe(Recipe(3, "normed"), {"p": np.full(20, 0.5)})
    decision = decide([*tried, last], last.recipe, {"p": 1.0})
    rows = picked_layers(decision, [*tried, last], lambda recipe: RelativeTime(recipe.layer / 2, 0.1, 0.1))
    assert [(row.layer, row.transform) for row in rows] == [(1, transform), (2, transform), (3, transform), (3, "none")]
    assert decision.chosen.recipe.layer == chosen and decision.layers_alike == alike
    assert [row.scores["p"] for row in rows] == pytest.approx([*(100 * score for score in scores), 50])
    assert rows[3].gain.mean == 0 and [row.relative_time for row in rows] == [0.5, 1.0, 1.5, 1.0]
    found = Pick(ModelRef("m"), decision.answer.recipe, last.recipe, "rule", layers=rows)
    marked = [line.split()[0] for line in repr(found).splitlines() if line.endswith("chosen")]
    assert marked == [str(chosen)]
    used = "the map center and the template" if transform == "center" else "the template"
    assert f"last: the last layer unchanged; all other rows use {used}" in " ".join(repr(found).split())


def test_notes_name_the_map_without_what_stands_beside_it(pick_in_template):
    pick, _ = pick_in_template
    printed = " ".join(repr(pick()).split())
    assert "all other rows use the map center and the template" in printed and "pooling last" in printed


# ---- what was gained on labelled tasks


def test_gains_on_labelled_tasks_are_reported_model_by_model(pick_in_template):
    pick, _ = pick_in_template
    audit = {"tasks": 12, "fitted_on": "C", "gains": {"A": [3.04, 1.0, 5.26], "B": [-0.2, -1.0, 0.6]}}
    book = replace(BOOK, audit=audit)
    said = (
        "on 12 labelled tasks that were not used to choose this rule, with maps fitted on C, it gained over the last "
        "layer: A +3.0 (1.0 to 5.3), B -0.2 (-1.0 to 0.6). That is 2 models; yours may gain less or nothing, so score "
        "it on your task"
    )
    assert pick(book=book).why[-1] == said
    assert not any("labelled tasks" in reason for reason in pick().why), "an untested rule claims nothing"
    kept = pick(book=replace(book, margin=1e6))
    assert kept.keep_last and not any("labelled tasks" in reason for reason in kept.why)


def test_the_shipped_rule_has_known_templates_maps_and_gains():
    book = default_rulebook()
    assert templates_to_try(book.templates) and book.template_transforms
    for transform in (*book.transforms, *book.template_transforms):
        Recipe(1, pooling="last", transform=transform)
    for mean, low, high in book.audit.get("gains", {}).values():
        assert low <= mean <= high
    assert not book.audit or book.audit["tasks"] > 0


# ---- options


def test_templates_are_names_texts_or_none():
    assert templates_to_try("none") == templates_to_try(["none"]) == templates_to_try([]) == ()
    assert templates_to_try(["about", "w1 {text}"]) == (TEMPLATES["about"], "w1 {text}")
    with pytest.raises(InputError, match=r"templates: an empty one, or \{text\} alone, adds nothing; pass none"):
        PickOptions("m", templates="{text}")
    with pytest.raises(InputError, match="template 'promteol' is not one of .*did you mean prompteol"):
        PickOptions("m", templates=["promteol"])


def test_the_flags_are_passed_on_and_recorded(reading_llama, word_texts, tmp_path, monkeypatch, capsys):
    pd.DataFrame({"text": word_texts}).to_csv(tmp_path / "t.csv", index=False)
    bold = replace(default_rulebook(), margin=-1000)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: bold)
    flags = ["--templates", "w1, w2 {text} w3", "--templates", "about", "--dims", "3"]
    words = [reading_llama, "--fit", str(tmp_path / "t.csv"), "--max-length", "32"]
    assert main(["pick", *words, *flags, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["recipe"]["transform"].endswith("@3")
    assert record["options"]["templates"] == ["w1, w2 {text} w3", "about"] and record["options"]["dims"] == 3
    command = pick_command(record, "run")
    assert all(shlex.join(flag) in command for flag in (flags[:4], flags[4:])), "a report shows how it was called"
    assert main(["pick", *words, "--templates", "none", "--dims", "3", "--export", str(tmp_path / "e")]) == 0
    made = json.loads((tmp_path / "e" / "layerwise.json").read_text())["recipe"]
    assert made["template"] == "" and made["transform"].endswith("@3") and made["pooling"] == "mean"


def test_static_is_for_layers_without_a_template(pick_in_template, tiny_llama):
    pick, _ = pick_in_template
    assert pick(static=False).recipe == pick().recipe
    assert [r.pooling for r in layer_candidates(open_network(tiny_llama))] == ["mean"] * 4

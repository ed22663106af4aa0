"""Templates: text before and after the input, the same in eval, pick, embed and every exported model."""

import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from embedders import ship
from families import make_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Readout, Recipe
from layerwise.core.templates import TEMPLATES, parse_template
from layerwise.inputs.source import Example
from layerwise.inputs.templating import with_template
from layerwise.inputs.tokenizing import encode_texts
from layerwise.maps.fitted import FittedRecipe
from layerwise.models.opening import open_network
from layerwise.models.spec import call_record
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.identity import ModelRef
from layerwise.runs.table import LayerTable
from layerwise.verbs.eval.api import plan_evaluation
from layerwise.verbs.eval.data_root import write_task
from layerwise.verbs.eval.options import EvaluateOptions
from layerwise.verbs.eval.scoring import Scorer
from layerwise.verbs.eval.tasks import TaskChoice
from layerwise.verbs.eval.vectors import VectorKind, find_kinds
from layerwise.verbs.report.repeat_commands import command_arguments

EOL = TEMPLATES["prompteol"]
ODD_TEXTS = [
    "A small dog sleeps.",
    "",
    " ",
    'she said: "no"',
    "the word {text} in braces",
    "{before}{0}%s $A :0",
    "🦊🦊 naïve 東京",
    "line\nbreak\ttab",
    "long " * 200,
]
# What each tokenizer adds around a text, by hand.
AROUND = {"stories260k": ([1], []), "all-minilm-l6-v2": ([101], [102]), "smollm2-135m": ([], [])}


# ---- what a template is


def test_a_template_has_two_parts_and_a_name_stands_for_its_text():
    assert asdict(parse_template('say "{text}" now')) == {"before": 'say "', "after": '" now'}
    assert Recipe(1, template="prompteol").template == 'This sentence : "{text}" means in one word:"'
    assert Recipe(1, template="keywords").template == "{text}\n\nKeywords:"
    assert Recipe(1, template="{text}") == Recipe(1, template="") == Recipe(1)
    assert all(parse_template(text).text == text for text in TEMPLATES.values())


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("promteol", "did you mean prompteol"),
        ("query: ", r"does not say where the input goes; put \{text\} there, such as 'query: \{text\}'"),
        ("{text} and {text}", "2 times; the input can stand in one place only"),
        (3, "a template is a text such as"),
    ],
)
def test_a_wrong_template_is_refused_with_the_fix(template, message, tiny_llama, tmp_path):
    with pytest.raises(InputError, match=message):
        Recipe(1, template=template)
    with pytest.raises(InputError, match=message):
        layerwise.export(tiny_llama, 2, tmp_path / "m", template=template)
    with pytest.raises(InputError, match=message):
        layerwise.eval(tiny_llama, "all", data_root=tmp_path, out=tmp_path / "e", template=["about", template])


# ---- the tokenizer adds it


def by_hand(tokenizer, around, template, text, max_length=None):
    """The ids of a text between the parts of a template, as a person would write them down."""
    before, after = template.split("{text}")
    first, bare, last = (
        tokenizer(part, add_special_tokens=False)["input_ids"] if part else [] for part in (before, text, after)
    )
    start, end = around
    room = None if max_length is None else max_length - len([*start, *first, *last, *end])
    return [*start, *first, *bare[:room], *last, *end]


@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize("template", [*TEMPLATES.values(), "$A: {text}: $B :0 </s>"])
def test_ids_are_those_of_the_parts_one_after_the_other(name, template, real_model):
    tokenizer = AutoTokenizer.from_pretrained(real_model(name))
    own = [tokenizer(text)["input_ids"] for text in ODD_TEXTS]
    templated = with_template(tokenizer, template)
    expected = [by_hand(tokenizer, AROUND[name], template, text) for text in ODD_TEXTS]
    assert templated(ODD_TEXTS)["input_ids"] == expected
    assert [templated(text)["input_ids"] for text in ODD_TEXTS] == expected
    assert [tokenizer(text)["input_ids"] for text in ODD_TEXTS] == own, "the given tokenizer is unchanged"
    cut = [by_hand(tokenizer, AROUND[name], template, text, 150) for text in ODD_TEXTS]
    found = encode_texts(templated, ODD_TEXTS, 150)
    assert [list(ids) for ids, _ in found] == cut
    assert [truncated for _, truncated in found] == [a != b for a, b in zip(cut, expected, strict=True)]
    assert found[-1][1] and len(found[-1][0]) == 150


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(12, 40))
def test_any_text_stands_between_the_parts(text, length):
    tokenizer, template = make_tokenizer(), "w5 w6 {text} w7 : w8"
    ids = with_template(tokenizer, template)(text, truncation=True, max_length=length)["input_ids"]
    assert ids == by_hand(tokenizer, ([], []), template, text, length)


def test_a_saved_tokenizer_still_adds_it(real_model, tmp_path):
    """The class of BERT's tokenizers would build its own post-processor."""
    tokenizer = AutoTokenizer.from_pretrained(real_model("all-minilm-l6-v2"))
    with_template(tokenizer, EOL).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("a dog")["input_ids"] == by_hand(tokenizer, AROUND["all-minilm-l6-v2"], EOL, "a dog")


def test_every_entry_of_the_tokenizer_file_is_a_word_of_the_vocabulary(real_model):
    """Programs that look entries up by name, as transformers.js does, find the same ids."""
    tokenizer = with_template(AutoTokenizer.from_pretrained(real_model("stories260k")), EOL)
    record = json.loads(tokenizer.backend_tokenizer.to_str())["post_processor"]
    names = [piece["SpecialToken"]["id"] for piece in record["single"] if "SpecialToken" in piece]
    ids = [tokenizer.get_vocab()[name] for name in names]
    assert ids == tokenizer("")["input_ids"] and len(ids) > 10
    assert all(record["special_tokens"][name]["ids"] == [i] for name, i in zip(names, ids, strict=True))


class SlowTokenizer:
    """A tokenizer in plain Python."""

    is_fast = False


def test_what_cannot_add_text_after_the_input_is_refused_with_the_fix(tiny_llama):
    with pytest.raises(InputError, match=r"SlowTokenizer cannot add text after the input.* ends with \{text\}"):
        with_template(SlowTokenizer(), EOL)
    slow = SlowTokenizer()
    assert with_template(slow, "query: {text}") is slow
    network = open_network(tiny_llama)
    with pytest.raises(
        InputError, match="max_length 3 leaves no room for the text: the tokenizer adds 4 special tokens.*5"
    ):
        pooled_vectors(network, [Example("0", "w1")], [Readout(1)], max_length=3, template="w5 w6 {text} w7 w8")


# ---- vectors


def test_text_before_the_input_gives_the_vectors_of_the_longer_text(tiny_llama):
    network, texts, readouts = open_network(tiny_llama), ["w1 w2", "w3", "w4 w5 w6"], [Readout(2), Readout(3, "normed")]
    found = pooled_vectors(
        network, [Example(str(i), t) for i, t in enumerate(texts)], readouts, max_length=9, template="w90 w91 {text}"
    )
    longer = [Example(str(i), f"w90 w91 {t}") for i, t in enumerate(texts)]
    expected = pooled_vectors(network, longer, readouts, max_length=9)
    assert all(torch.equal(found[readout], expected[readout]) for readout in readouts)


def vectors_by_hand(folder, layer, rows_of_ids, pooled=lambda states, ids: states[-1]):
    """Vectors straight from transformers, one text at a time."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        states = [
            model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
            for ids in rows_of_ids
        ]
    return np.stack([pooled(s, ids).numpy() for s, ids in zip(states, rows_of_ids, strict=True)])


def close(found, expected):
    return np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["stories260k", "all-minilm-l6-v2"])
def test_an_exported_model_reads_texts_with_its_template(name, real_model, tmp_path):
    folder, length = real_model(name), 60
    tokenizer = AutoTokenizer.from_pretrained(folder)
    layerwise.export(folder, 3, tmp_path / "m", template="prompteol", max_length=length)
    ids = [by_hand(tokenizer, AROUND[name], EOL, text, length) for text in ODD_TEXTS]
    assert len(ids[-1]) == length, "the long text is truncated"
    expected = vectors_by_hand(folder, 3, ids)
    model = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert close(model.encode(ODD_TEXTS), expected), "in one padded batch"
    assert close(np.concatenate([model.encode([text]) for text in ODD_TEXTS]), expected), "alone"
    network = open_network(folder)
    readout = Readout(3, pooling="last")
    examples = [Example(str(i), text) for i, text in enumerate(ODD_TEXTS)]
    ours = pooled_vectors(network, examples, [readout], max_length=length, template="prompteol")
    assert close(ours[readout].numpy(), expected), "as eval reads it"
    again = layerwise.embed(str(tmp_path / "m"), ODD_TEXTS, layers="last")["last"]
    assert close(np.stack(list(again)), expected), "layerwise reads its own export"
    record = json.loads((tmp_path / "m" / "layerwise.json").read_text())
    assert record["recipe"]["template"] == EOL and record["recipe"]["pooling"] == "last" and record["truncated_text"]
    assert Recipe.load(tmp_path / "m").template == EOL
    card = (tmp_path / "m" / "README.md").read_text()
    assert "## Template" in card and "llama.cpp" in card and "`'This sentence : \"'`" in card


def test_special_tokens_are_left_out_and_the_template_is_not(real_model, tmp_path):
    folder, length = real_model("all-minilm-l6-v2"), 60
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = {"template": "about", "tokens": "no_special", "pooling": "mean", "max_length": length}
    model = layerwise.export(folder, 3, tmp_path / "m", **options)
    ids = [by_hand(tokenizer, AROUND["all-minilm-l6-v2"], TEMPLATES["about"], text, length) for text in ODD_TEXTS]
    assert close(model.encode(ODD_TEXTS), vectors_by_hand(folder, 3, ids, lambda states, ids: states[1:-1].mean(dim=0)))


def test_a_model_that_leaves_out_its_prompt_is_not_read_as_shipped_with_text_after_the_input(tmp_path):
    folder = ship(tmp_path / "model", "llama", "mean", prompt="w90 w91 ", include_prompt=False)
    network, examples = open_network(folder), [Example("0", "w1 w2")]
    last = Readout(network.depth, "shipped", pooling="shipped")
    with pytest.raises(InputError, match="leaves out the tokens of its prompt.*last layer by number"):
        pooled_vectors(network, examples, [last], max_length=10, template="w1 {text} w2")
    found = pooled_vectors(network, examples, [last], max_length=10, template="w90 w91 {text}")[last]
    assert close(found.numpy(), SentenceTransformer(folder, device="cpu").encode(["w1 w2"]))


def test_text_before_the_input_stays_a_prompt_of_sentence_transformers(tiny_llama, tmp_path):
    model = layerwise.export(tiny_llama, 2, tmp_path / "m", template="w90 {text}")
    assert model.prompts["default"] == "w90 " and model.default_prompt_name == "default"
    assert model.tokenizer("w1")["input_ids"] == make_tokenizer()("w1")["input_ids"]
    assert "w90 " in (tmp_path / "m" / "README.md").read_text()


# ---- eval

PAIRS = {"sentence1": ["w1 w2 w3", "w3 w4", "w5 w6", "w8"], "sentence2": ["w1", "w3 w9", "w7", "w2 w8"]}


def write_pairs(folder):
    write_task(folder, "Mine", "STS", pd.DataFrame(PAIRS | {"score": [1.0, 2.0, 0.0, 3.0]}))


def test_eval_scores_every_layer_under_each_template(tiny_llama, tmp_path):
    write_pairs(tmp_path / "root")
    template, options = "w5 {text} w6 w7", {"data_root": tmp_path / "root", "out": tmp_path / "out"}
    table = layerwise.eval(tiny_llama, "all", template=[template, "{text}", "w9 {text}"], **options)
    rows = [row for row in table if row.norm == "raw"]
    readings = {(row.template, row.pooling) for row in rows}
    assert readings == {(template, "last"), ("", "mean"), ("w9 {text}", "mean")} and len(rows) == 3 * 4
    tokenizer = make_tokenizer()
    for layer in (1, 2):
        first, second = (
            vectors_by_hand(tiny_llama, layer, [by_hand(tokenizer, ([], []), template, text) for text in PAIRS[name]])
            for name in ("sentence1", "sentence2")
        )
        cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
        (row,) = (row for row in rows if (row.layer, row.template) == (layer, template))
        assert row.value == pytest.approx(100 * spearmanr(cosines, [1.0, 2.0, 0.0, 3.0]).statistic)
    kinds = {kind.template: kind for kind in find_kinds(tmp_path / "out")}
    assert set(kinds) == {template, "", "w9 {text}"}
    assert {readout.pooling for readout in kinds[template].readouts} == {"last"}
    assert {readout.pooling for readout in kinds["w9 {text}"].readouts} == {"mean"}
    different = len({*PAIRS["sentence1"], *PAIRS["sentence2"]})
    assert table.run["forwarded_texts"] == 3 * different
    fewer = layerwise.eval(tiny_llama, "all", layers="1", template=template, **options)
    assert fewer.run["forwarded_texts"] == 0, "a later call with fewer layers finds their vectors"
    asked = [template, "{text}", "w9 {text}"]
    plan = plan_evaluation(EvaluateOptions(tiny_llama, "all", out="", data_root=tmp_path / "root", template=asked))
    assert any(line.startswith(f"{3 * different} forward passes, one per different text and template") for line in plan)


def test_pooling_that_is_given_is_kept(tiny_llama, tmp_path):
    write_pairs(tmp_path / "root")
    table = layerwise.eval(
        tiny_llama,
        "all",
        data_root=tmp_path / "root",
        out=tmp_path / "out",
        layers="1",
        pooling="mean",
        template="about",
    )
    assert {row.pooling for row in table} == {"mean"}


def test_templates_that_would_have_no_effect_are_refused(tiny_llama, tmp_path):
    write_pairs(tmp_path / "root")
    options = {"data_root": tmp_path / "root", "out": tmp_path / "out", "template": "about"}
    with pytest.raises(InputError, match="`last` is the model as shipped"):
        layerwise.eval(tiny_llama, "all", layers="last", **options)
    with pytest.raises(InputError, match="prompts= would replace the template"):
        layerwise.eval(tiny_llama, "all", prompts={"Mine": "w3 "}, **options)


def test_the_flag_is_repeated_and_recorded(tiny_llama, tmp_path, capsys):
    write_pairs(tmp_path / "root")
    templates = ["about", "w1, w2 {text}"]
    flags = [word for template in templates for word in ("--template", template)]
    words = ["eval", tiny_llama, "--tasks", "all", "--data-root", str(tmp_path / "root"), "--workers", "0"]
    assert main([*words, "--layers", "1", *flags, "--out", str(tmp_path / "out")]) == 0
    table = LayerTable.load(tmp_path / "out")
    assert {row.template for row in table} == {TEMPLATES["about"], "w1, w2 {text}"}
    assert "template" in capsys.readouterr().out
    options = EvaluateOptions("m", tasks="all", out="o", template=templates)
    command = command_arguments(call_record("eval", options), model="m")
    at = command.index("--template")
    assert command[at : at + 4] == flags


def test_a_fitted_recipe_keeps_the_text_after_the_input(tmp_path):
    model = ModelRef("org/model", fingerprint="abcd")
    fitted = FittedRecipe(Recipe(3, template="about"), model)
    assert FittedRecipe.load(fitted.save(tmp_path)) == fitted != FittedRecipe(Recipe(3), model)


def test_results_of_two_templates_are_stored_under_two_names(tmp_path):
    kind = VectorKind("m", "float32", 9, (Readout(1),), "query: {text}")
    assert kind.name() != replace(kind, template="query: {text}!").name()
    recipe = Recipe(1, transform="center", template="query: {text}")
    scorer = Scorer(tmp_path, kind, "float32", "m", "main", fit=("a", "b"))
    path = scorer.path(TaskChoice("Mine", "STS"), recipe)
    assert path.name.startswith("001-raw-all-mean-") and path.name.endswith("-hub.json")
    assert scorer.path(TaskChoice("Mine", "STS"), replace(recipe, template="query: {text}!")) != path

"""pick by pairs of texts that belong together: the ranks of a count by hand, and a choice in words nobody bundled."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from families import make_reader

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.verbs.pick.candidates import ScoredRecipe
from layerwise.verbs.pick.decision import decide
from layerwise.verbs.pick.partners import MAX_PAIRS, partner_probe
from layerwise.verbs.pick.probes import PARTNER
from layerwise.verbs.pick.result import Pick
from layerwise.verbs.pick.run import default_rulebook

RNG = np.random.default_rng(0)
PAIRS = [(f"w{i} w{i + 1} w{2 * i}", f"w{i + 1} w{i + 2} w{i}") for i in range(24)]


def test_ranks_by_a_loop_in_both_directions():
    """With a query that has two documents, and a document that answers two queries."""
    pairs = [(f"q{i}", f"d{i}") for i in range(16)] + [("q0", "extra"), ("q1", "d2")]
    probe = partner_probe(pairs)
    firsts, seconds = [f"q{i}" for i in range(16)], [*(f"d{i}" for i in range(16)), "extra"]
    assert probe.texts == (*firsts, *seconds) and probe.units == 16
    rows = RNG.normal(size=(33, 5))
    unit = dict(zip(probe.texts, rows / np.linalg.norm(rows, axis=1, keepdims=True), strict=True))

    def rank(own, others):
        return 1 / (1 + sum(value >= own for value in others))

    expected = []
    for query in firsts:
        found = []
        for _, document in (pair for pair in pairs if pair[0] == query):
            own = unit[query] @ unit[document]
            documents = [unit[query] @ unit[d] for d in seconds if (query, d) not in pairs]
            queries = [unit[q] @ unit[document] for q in firsts if (q, document) not in pairs]
            found.append((rank(own, documents) + rank(own, queries)) / 2)
        expected.append(np.mean(found))
    assert probe.score(rows) == pytest.approx(expected)
    perfect = np.concatenate([np.eye(33)[:16], np.eye(33)[:16], np.eye(33)[:1]])
    assert partner_probe(pairs[:-1]).score(perfect).tolist() == [1.0] * 16
    assert partner_probe(pairs[:16]).score(np.ones((32, 2))) == pytest.approx(np.full(16, 1 / 16)), "ties help nobody"


def test_a_text_is_no_wrong_answer_for_itself():
    pairs = [*((f"q{i}", f"d{i}") for i in range(16)), ("a", "q0")]  # q0 is a first and a second text
    rows = np.eye(40)[[*range(16), 16, *range(16), 16]]  # each like its partner; the second q0 is like a
    rows[-1] = rows[0]
    rows[16] = rows[0]
    assert partner_probe(pairs).score(rows)[0] == pytest.approx((1 + 0.5) / 2), "only a is as near to d0"


def test_pairs_that_cannot_be_used():
    with pytest.raises(InputError, match="15 different pairs of 15 first texts and 15 second texts are too few"):
        partner_probe(PAIRS[:15] * 3)
    with pytest.raises(InputError, match="1 second text are too few"):
        partner_probe([(first, "w1") for first, _ in PAIRS])
    with pytest.warns(UserWarning, match="1 pairs of the same text are left out"):
        assert partner_probe([*PAIRS, ("w1  w2", "W1 w2")]).units == 24
    many = [(f"q{i}", f"d{i}") for i in range(2 * MAX_PAIRS)]
    one, again, other = (partner_probe(many, seed) for seed in (0, 0, 1))
    assert one.units == MAX_PAIRS and one.texts == again.texts != other.texts


def test_pairs_judge_the_form_in_which_a_recipe_is_used():
    last, low = (ScoredRecipe(Recipe(k), {PARTNER: np.full(20, score)}) for k, score in ((3, 0.5), (1, 0.7)))
    for score, expected in ((0.6, low.recipe), (0.8, replace(low.recipe, transform="center+static"))):
        beside = ScoredRecipe(replace(low.recipe, transform="center+static"), {PARTNER: np.full(20, score)})
        found = decide([low, last], last.recipe, {PARTNER: 1.0}, margin=2, deployed=lambda of, b=beside: b)
        assert found.answer.recipe == expected
    assert decide([low, last], last.recipe, {PARTNER: 1.0}, margin=25).answer is last, "the same margin"


def test_pairs_choose_for_a_model_that_the_bundled_sentences_cannot_judge(tiny_llama, tmp_path, capsys, monkeypatch):
    bold = replace(default_rulebook(), margin=-1000)
    monkeypatch.setattr("layerwise.verbs.pick.run.default_rulebook", lambda: bold)
    pd.DataFrame(PAIRS, columns=["query", "document"]).to_csv(tmp_path / "pairs.csv", index=False)
    words = ["pick", tiny_llama, "--pairs", str(tmp_path / "pairs.csv"), "--max-length", "16", "--save"]
    assert main([*words, str(tmp_path / "picked"), "--json"]) == 0
    printed = capsys.readouterr()
    assert "on the pairs of" in printed.err and "bundled sentences" not in printed.err
    found = json.loads(printed.out)
    assert found["judged_on"] == "pairs of 24 texts of yours" and found["options"]["pairs"].endswith("pairs.csv")
    assert [*found["layers"][0]["scores"]] == [PARTNER] and found["recipe"]["transform"] == "none"
    said = " ".join(found["why"])
    assert "no linear map was tried: the tokenizer cannot read" in said and "labelled tasks" not in said
    assert "best of 4 recipes on these pairs" in said
    table = repr(Pick.load(tmp_path / "picked"))
    assert "mean reciprocal rank of a text's partner" in table and max(map(len, table.splitlines()[1:-1])) <= 80
    own = layerwise.pick(tiny_llama, [" ".join(pair) for pair in PAIRS], pairs=PAIRS, max_length=16)
    assert "no linear map was tried" not in " ".join(own.why) and own.options["pairs"] == {"in_memory": "list"}
    expected = layerwise.embed(tiny_llama, [text for text in partner_probe(PAIRS).texts], layers="1", max_length=16)
    score = 100 * partner_probe(PAIRS).score(np.stack(expected.layer_1.tolist())).mean()
    assert found["layers"][1]["scores"][PARTNER] == pytest.approx(score, abs=0.01)
    with pytest.raises(InputError, match="static model is made from texts that the model can read"):
        layerwise.pick(tiny_llama, pairs=PAIRS, compare_static=True)


def test_pairs_and_a_language_of_bundled_sentences_exclude_each_other(tiny_llama):
    with pytest.raises(InputError, match="pairs replace the bundled sentences, so language is not used"):
        layerwise.pick(tiny_llama, pairs=PAIRS, language="de")


def test_a_language_is_named_with_the_evidence():
    model, tokenizer = make_reader("llama", "fr")
    found = layerwise.pick((model, tokenizer), language="fr", max_length=32)
    assert found.judged_on == "126 bundled French test sentences" and found.options["language"] == "fr"
    with pytest.raises(InputError, match=r"bundled German sentences cannot judge .* --language fr$"):
        layerwise.pick((model, tokenizer), language="de", max_length=32)

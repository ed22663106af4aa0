"""Several models on one table: paired differences, clear losers dropped early, and what each costs."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from families import WIDTH, make_model, make_reader
from places import ROOT

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.runs.identity import ModelRef
from layerwise.verbs.pick import models
from layerwise.verbs.pick.candidates import ScoredRecipe
from layerwise.verbs.pick.decision import Decision
from layerwise.verbs.pick.models import Tried, is_several
from layerwise.verbs.pick.probes import PARTNER
from layerwise.verbs.pick.result import Pick

PAIRS = [(f"w{i % 89} w{i // 89} w{(3 * i) % 80}", f"w{i % 89} w{(3 * i) % 80} w{i // 89} w5") for i in range(80)]
COSTS = {"seconds": 0.2, "parameters": 3.0, "megabytes": 12.0, "width": 384}


@pytest.fixture
def known(monkeypatch):
    """Models whose scores are known: a name and its mean. Records the number of pairs that each saw."""
    means, seen = {"good": 0.8, "near": 0.78, "bad": 0.3}, []

    def tried(model, options):
        seen.append((model, len(options.pairs)))
        noise = np.random.default_rng(0).normal(size=len(options.pairs))
        own = np.random.default_rng(len(model)).normal(size=len(options.pairs))
        units = means[model] + 0.1 * (noise - noise.mean()) + 0.05 * (own - own.mean())
        scored = ScoredRecipe(Recipe(3), {PARTNER: units})
        decision = Decision(scored, scored, scored, scored, (), {PARTNER: 1.0})
        found = Pick(ModelRef(model), Recipe(3), Recipe(3), "r", (), decision=decision, judged_on="x")
        return Tried(model, found, COSTS)

    monkeypatch.setattr(models, "try_model", tried)
    monkeypatch.setattr(models, "input_kind_of_model", lambda model: "text")
    return seen


def test_a_clear_loser_is_dropped_after_a_quarter_and_named(known):
    found = layerwise.pick(["bad", "near", "good"], pairs=PAIRS)
    assert known == [("bad", 20), ("near", 20), ("good", 20), ("near", 80), ("good", 80)]
    assert [(row.name, row.dropped_after) for row in found.rows] == [("good", None), ("near", None), ("bad", 20)]
    best, near, bad = found.rows
    assert near.difference.mean == pytest.approx(-2) and best.difference.mean == best.difference.error == 0
    assert near.difference.error < 0.8 * near.score.error, "paired by unit: what both find hard cancels"
    assert bad.difference.mean == pytest.approx(-50) and "bad: dropped after 20 pairs; " in repr(found)
    known.clear()
    full = layerwise.pick(("bad", "near", "good"), pairs=PAIRS, early_stop=False)
    assert [count for _, count in known] == [80] * 3 and [row.dropped_after for row in full.rows] == [None] * 3
    few = layerwise.pick(["bad", "good"], pairs=PAIRS[:40])
    assert few.rows[1].dropped_after is None, "a quarter of 40 pairs shows nothing"


def test_the_command_prints_a_table_of_two_models(tiny_llama, tiny_bert, tmp_path, capsys):
    pd.DataFrame(PAIRS, columns=["query", "document"]).to_csv(tmp_path / "pairs.csv", index=False)
    words = ["pick", tiny_llama, tiny_bert, "--pairs", str(tmp_path / "pairs.csv"), "--max-length", "16"]
    assert main([*words, "--no-early-stop"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("on pairs of 80 texts of yours:\nmodel ") and max(map(len, printed.splitlines())) <= 80
    assert main([*words, "--no-early-stop", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert {row["name"] for row in rows} == {tiny_llama, tiny_bert} and rows[0]["difference"]["mean"] == 0
    alone = {model: layerwise.pick(model, pairs=PAIRS, max_length=16) for model in (tiny_llama, tiny_bert)}
    for row in rows:
        picked = alone[row["name"]]
        assert row["score"]["mean"] == pytest.approx(100 * picked.decision.answer.mean(PARTNER))
        assert row["width"] == WIDTH * len(picked.recipe.parts) and row["index_megabytes"] == 4 * row["width"]
        if row["name"] == tiny_llama:
            assert row["parameters"] == sum(p.numel() for p in make_model("llama").parameters()) / 1e6
    assert main([*words, "--save", str(tmp_path / "s")]) == 2 and "for one model" in capsys.readouterr().err


def test_a_list_of_models_of_any_kind_is_ranked_in_python(tiny_llama, reading_llama, tmp_path):
    """Names and objects; a pair of module and tokenizer is one model. Each row has a Pick that export takes."""
    found = layerwise.pick([tiny_llama, reading_llama], pairs=PAIRS, max_length=16, early_stop=False, layer_only=True)
    assert isinstance(found, layerwise.RankedModels) and len(found.rows) == 2
    for row in found.rows:
        assert isinstance(row.picked, layerwise.Pick) and "early_stop" not in row.picked.options
        assert row.score.mean == pytest.approx(100 * row.picked.decision.answer.mean(PARTNER))
    one = layerwise.pick(reading_llama, pairs=PAIRS, max_length=16, layer_only=True)
    assert isinstance(one, layerwise.Pick)
    assert not is_several("m") and is_several([reading_llama, "m"])
    module, tokenizer = make_reader("llama", "fr")
    assert not is_several((module, tokenizer)) and is_several((module, module)) and is_several(["m", "n"])


def test_what_is_about_one_model_or_about_several_is_refused(capsys):
    with pytest.raises(InputError, match="two or more"):
        layerwise.pick(["m"])
    with pytest.raises(InputError, match="rule, compare_static can be used with one model only"):
        layerwise.pick(["m", "n"], rule="last", compare_static=True)
    with pytest.raises(InputError, match="early_stop is about several models"):
        layerwise.pick("m", early_stop=False)
    assert main(["pick", "m", "--no-early-stop"]) == 2 and "about several models" in capsys.readouterr().err


def test_a_run_cannot_be_ranked(tiny_llama, tmp_path):
    layerwise.scan(tiny_llama, ["w1 w2 w3", "w2 w4"], metrics="curvature", out=tmp_path / "run")
    with pytest.raises(InputError, match="run is a run, and models are ranked"):
        layerwise.pick([tiny_llama, tmp_path / "run"])


TYPED = """
from typing import assert_type

import layerwise

one = layerwise.pick("m", prefer="fast")
assert_type(one, layerwise.Pick)
assert_type(layerwise.pick(["m", "n"], early_stop=False), layerwise.RankedModels)
names = ["m", "n"]
assert_type(layerwise.pick(run=names), layerwise.RankedModels)
layerwise.pick("m", prefr="fast")  # type: ignore[call-overload]
"""


@pytest.mark.long
def test_a_type_checker_knows_what_pick_returns(tmp_path):
    (tmp_path / "user.py").write_text(TYPED)
    words = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "user.py")]
    checked = subprocess.run([sys.executable, "-m", "mypy", *words], capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr

"""studies/evidence shows what its committed tables say, and nothing else."""

import sys
from types import SimpleNamespace

import pandas as pd
import torch
from families import make_tokenizer
from places import ROOT, script

from layerwise.inputs.source import Example
from layerwise.verbs.lab.reproduce.findings import DEVELOPMENT, HELD_OUT, ROUNDED

STUDY = ROOT / "studies" / "evidence"


def test_the_page_and_the_claims_are_those_of_the_tables():
    judge = script(STUDY / "judge.py")
    scores, metrics = judge.tables(STUDY)
    page = (STUDY / "README.md").read_text(encoding="utf-8")
    for name, block in judge.blocks(scores, metrics, judge.recipes(STUDY)).items():
        assert f"<!-- {name}: written by judge.py -->\n{block}\n<!-- end of {name} -->" in page, name
    for name in ("claims", "answers"):
        made = judge.judge(scores, metrics)[name].to_csv(index=False)
        assert (STUDY / f"{name}.csv").read_text(encoding="utf-8") == made, name
    assert len(scores) == 0 or (STUDY / "advantage.png").exists()


def test_echo_reads_each_text_twice_and_counts_the_second_copy():
    development = script(ROOT / "studies" / "recipes" / "development.py")
    tokenizer = make_tokenizer()
    (text,) = development.EchoProcessor(tokenizer).prepare([Example("0", "w1 w2")], 16)
    own = tokenizer("w1 w2", add_special_tokens=False)["input_ids"]
    assert list(text.views[0][-len(own) :]) == own and text.copy == len(own)
    assert list(text.views[0][: len(text.views[0]) // 2]).count(own[0]) == 1, "the first copy is there too"
    inputs = {"input_ids": torch.tensor([text.views[0]])}
    masks = development.EchoProcessor(tokenizer).masks([text], inputs, len(text.views[0]))
    assert masks.special[0, 0].logical_not().sum() == len(own) and not masks.special[0, 0, -len(own) :].any()


def test_the_models_that_are_run_are_those_of_the_protocol():
    run, models = script(STUDY / "run.py"), pd.read_csv(ROOT / "studies" / "protocol" / "models.csv")
    assert set(HELD_OUT) == set(models.model[models.scored_by == "evidence"])
    folders = [run.folder_of(*call) for call in run.CALLS]
    names = {name.removesuffix("-bfloat16") for name in folders}
    assert len(set(folders)) == len(folders) and {*HELD_OUT, *DEVELOPMENT, *ROUNDED} <= names
    assert {"smollm2-135m", "smollm2-135m-bfloat16", "smollm2-135m-4bit-bfloat16", "opus-mt-fr-en-decoder"} <= {
        *folders
    }


def test_rounding_keeps_both_ends_of_each_32_weights_and_gives_four_values_at_2_bits(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script adds the folder of another study
    encode = script(STUDY / "encode.py")
    for name in ("development", "prepare"):
        sys.modules.pop(name, None)
    blocks = torch.nn.ModuleList([torch.nn.Linear(64, 5)])
    before = blocks[0].weight.detach().clone().unflatten(1, (-1, 32))
    encode.round_weights(SimpleNamespace(structure=SimpleNamespace(blocks=blocks)), 2)
    after = blocks[0].weight.detach().unflatten(1, (-1, 32))
    assert all(len(group.unique()) == 4 for row in after for group in row)
    step = (before.amax(-1) - before.amin(-1)) / 3
    assert torch.allclose(after.amax(-1), before.amax(-1)) and torch.allclose(after.amin(-1), before.amin(-1))
    assert ((after - before).abs() <= step[..., None] / 2 + 1e-6).all()

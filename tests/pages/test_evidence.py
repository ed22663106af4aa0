"""studies/evidence shows what its committed tables say, and nothing else."""

import pandas as pd
import torch
from families import make_tokenizer
from places import ROOT, script

from layerwise.inputs.source import Example

STUDY = ROOT / "studies" / "evidence"


def test_the_page_and_the_claims_are_those_of_the_tables():
    judge = script(STUDY / "judge.py")
    scores, metrics = judge.tables(STUDY)
    page = (STUDY / "README.md").read_text(encoding="utf-8")
    for name, block in judge.blocks(scores, metrics, judge.recipes(STUDY)).items():
        assert f"<!-- {name}: written by judge.py -->\n{block}\n<!-- end of {name} -->" in page, name
    for name in ("claims", "answers"):
        made = judge.judge(scores, metrics)[name].astype(str).replace("", "nan")
        assert pd.read_csv(STUDY / f"{name}.csv").astype(str).equals(made), name
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

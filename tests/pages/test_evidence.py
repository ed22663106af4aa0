"""studies/evidence shows what its committed tables say, and nothing else."""

import pandas as pd
from places import ROOT, script

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

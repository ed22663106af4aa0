"""The front door: every command and every line of Python in the README does what it says."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from places import ROOT

from layerwise.__main__ import main
from layerwise.inputs.text import demo_texts
from layerwise.verbs.pick.probes import proxy_items

README = (ROOT / "README.md").read_text(encoding="utf-8")
_, BASH = re.findall(r"```bash\n(.*?)```", README, re.S)  # installation, and the four steps
(PYTHON,) = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with texts and labelled pairs, where the commands are typed."""
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n".join(demo_texts()[:60]), encoding="utf-8")
    pairs = [
        (item["sentence"], item[name], score)
        for item in proxy_items()[:20]
        for name, score in (("paraphrase", 4.0), ("related", 1.0))
    ]
    pd.DataFrame(pairs, columns=["sentence1", "sentence2", "score"]).to_csv("pairs.csv", index=False)
    return tmp_path


@pytest.mark.filterwarnings("ignore")  # of mteb and its dependencies
def test_every_command_runs(desk, real_model, capsys):
    lines = [line.partition("#")[0].strip() for line in BASH.splitlines()]
    assert len(lines) == 4
    for line in lines:
        program, *words = shlex.split(line.replace("MODEL", real_model("stories260k")))
        assert program == "layerwise"
        assert main(words) == 0, line
        assert "".join(capsys.readouterr()).strip(), f"{line} said nothing"
    assert (desk / "report.html").stat().st_size < 1_000_000
    assert "stories260k" in (desk / "report.html").read_text(encoding="utf-8")


def test_the_python_lines_run(desk, real_model):
    exec(PYTHON.replace("MODEL", real_model("stories260k")), {})
    assert (desk / "smaller" / "layerwise.json").exists(), "of this model, pick recommends a lower layer"


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target.partition("#")[0]).exists(), target

"""The quickstart prints what it says: its short commands are run on a real model, and compared line by line.

The page leaves lines out, and shows `...` in their place.
"""

import re
import shlex
from pathlib import Path

import pytest
from places import ROOT

from layerwise.__main__ import main

PAGE = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
STEPS = re.findall(r"```bash\n(layerwise [^\n]*)\n```\n```text\n(.*?)```", PAGE, re.S)


def steady(printed: str) -> list[str]:
    """The lines without what differs from run to run: measured times, rounding noise, and the size of a page."""
    lines = []
    for line in printed.splitlines():
        line = re.sub(r"  [01]\.\d\d\??(?=$|  same|  chosen)", "", line)  # the column `time`
        line = re.sub(r"^encoding time: \S+|difference \d\.\de-\d\d|\(\d+ kB\)", "", line)
        lines.append(line.rstrip())
    return lines


def is_abridged(shown: list[str], printed: list[str]) -> bool:
    """True if the lines shown were printed in this order, with nothing left out but where `...` stands."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def test_an_output_that_differs_is_noticed():
    printed = ["a", "b", "c", "d"]
    assert is_abridged(printed, printed) and is_abridged(["...", "b", "...", "d"], printed)
    assert is_abridged(["a", "b", "...", "c", "d", "..."], printed), "... may stand for no line"
    assert not any(is_abridged(shown, printed) for shown in (["a", "b", "c"], ["b", "..."], ["...", "c", "b", "..."]))
    assert not is_abridged(["a", "...", "bc", "d"], printed)


@pytest.mark.filterwarnings("ignore")  # of libraries
def test_every_command_prints_what_the_page_shows(real_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("all-MiniLM-L6-v2").symlink_to(real_model("all-minilm-l6-v2"))
    assert len(STEPS) == 5
    for command, expected in STEPS:
        if "SmolLM2" in command:  # takes minutes: run by hand when the page changes
            continue
        assert main(shlex.split(command)[1:]) == 0, command
        out, err = capsys.readouterr()
        err = re.sub(r"(?m)^  [\d,]+ of [\d,]+ .* left\n", "", err)  # how far it is, on a slow machine
        printed = [line for line in err.splitlines() if not line.startswith(("saved in", "next:", "      layerwise"))]
        closing = [line for line in err.splitlines() if line not in printed]
        whole = steady("\n".join([*printed, *out.splitlines(), *closing]))
        assert is_abridged(steady(expected), whole), "\n".join([command, *whole])

"""The notebooks run from top to bottom, with a tiny model in place of the one that they name."""

import json
from pathlib import Path

import pytest
from families import save_byte_model

from scripts import notebooks

NOTEBOOKS = {path.stem: path for path in sorted(notebooks.NOTEBOOKS.glob("*.ipynb"))}
KILOBYTES = 20


def load(name):
    return json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    return save_byte_model(tmp_path_factory.mktemp("tiny"), depth=3)


def test_there_are_three():
    assert list(NOTEBOOKS) == ["choose_and_export", "first_look", "watch_training"]


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.filterwarnings("ignore")  # of trainers and loaders
def test_a_notebook_runs(name, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = NOTEBOOKS[name].read_text(encoding="utf-8").replace("max_length=128", "max_length=24")  # quicker
    notebook = json.loads(text)
    notebooks.run(notebook, tiny_model)
    shown = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert len(shown) >= 3
    assert not [output for output in shown if "'layers/0" in str(output)], "a trainer prints what it logs"
    made = {"first_look": "report.html", "choose_and_export": "small/modules.json", "watch_training": "layers-broken"}
    assert (tmp_path / made[name]).exists()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_small_and_shows_what_it_prints(name):
    assert NOTEBOOKS[name].stat().st_size < 1000 * KILOBYTES
    code = [cell for cell in load(name)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "run scripts/notebooks.py"
    assert notebooks.MODEL.search("".join(code[0]["source"])), "the first cell names the model"
    assert str(Path.home()) not in NOTEBOOKS[name].read_text(encoding="utf-8")


def test_a_cell_that_fails_is_noticed():
    with pytest.raises(ZeroDivisionError):
        notebooks.run({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]}, "model")


def test_what_a_cell_shows_is_kept():
    cells = [{"cell_type": "code", "source": ['MODEL = "a/b"  # yours\n', "print(MODEL)\n", "MODEL * 2"]}]
    notebook = {"cells": cells}
    notebooks.run(notebook, "mine")
    printed, value = cells[0]["outputs"]
    assert printed["text"] == ["mine\n"] and value["data"]["text/plain"] == ["'minemine'"]
    notebook["cells"].insert(0, {"cell_type": "markdown", "source": ["# Title\n", "words"]})
    page = notebooks.as_page(notebook, "n.ipynb")
    assert page.startswith("# Title\n\n[Download") and "```text\nmine\n```" in page

"""The one renderer of text tables."""

from pathlib import Path

import layerwise
from layerwise.core.columns import in_columns
from layerwise.verbs.pick.picked_layers import as_lines

ROWS = [["layer", "score", "note"], ["3", "61.25", "chosen"], ["last", "60.0", ""]]


def test_cells_are_aligned_to_the_left_or_to_the_right():
    assert in_columns(ROWS) == ["layer  score  note", "3      61.25  chosen", "last   60.0"]
    assert (
        in_columns(ROWS, right=(0, 1))
        == as_lines(ROWS)
        == ["layer  score  note", "    3  61.25  chosen", " last   60.0"]
    )


def test_only_labels_are_shortened_and_control_characters_are_written_out():
    rows = [["a name that is long", "1234567890"], ["x\x1b", "5"]]
    whole, cut = in_columns(rows, width=24), in_columns(rows, width=24, label_columns=1, right=(1,))
    assert whole[0] == "a name that is long  1234567890" and cut[0] == "a name that…  1234567890"
    assert len(cut[1]) == 24 and cut[1].split() == whole[1].split() == ["x\\u001b", "5"]


def test_no_other_code_pads_cells():
    source = Path(layerwise.__file__).parent
    padding = [str(p.relative_to(source)) for p in source.rglob("*.py") if "just(w" in p.read_text()]
    assert sorted(padding) == ["core/columns.py", "verbs/lab/audit/command.py"]

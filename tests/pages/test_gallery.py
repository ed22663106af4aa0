"""The gallery: its table is that of its data, and its reports are small and name no place of the machine."""

from pathlib import Path

import pandas as pd
from places import ROOT

from scripts import gallery

GALLERY = ROOT / "docs" / "gallery"

FRAME = pd.read_csv(GALLERY / "gallery.csv")


def test_the_table_is_that_of_the_data():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert gallery.table_of(FRAME) in page


def test_every_model_has_a_report_and_all_of_them_are_small():
    pages = {name: GALLERY / f"{name}.html" for name in FRAME.model}
    assert {path.name for path in GALLERY.glob("*.html")} == {path.name for path in pages.values()}
    assert sum(path.stat().st_size for path in pages.values()) < 2_000_000
    for name, path in pages.items():
        text = path.read_text(encoding="utf-8")
        assert f"layerwise scan {name} " in text and str(Path.home()) not in text

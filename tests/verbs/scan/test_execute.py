"""The one function that carries out a scan: in which order it does what, and that nothing else does it."""

import re
from pathlib import Path

import pytest

import layerwise
from layerwise.core.errors import TooLarge
from layerwise.core.files import open_folder
from layerwise.engines.opening import open_engine
from layerwise.verbs.scan import execute as module
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan.prepare import prepare


def test_scans_are_carried_out_in_one_place():
    """scan, stress, campaign and the callbacks of a training all call it."""
    source = Path(layerwise.__file__).parent
    found = {str(path.relative_to(source)): path.read_text() for path in source.rglob("*.py")}
    assert [name for name, text in found.items() if re.search(r"ScanShardFunction\(plan", text)] == [
        "verbs/scan/execute.py"
    ]
    assert sum("scan.execute import execute" in text for text in found.values()) == 4


def test_memory_is_checked_before_the_model_is_loaded_and_the_folder_is_claimed(
    tiny_llama, word_texts, tmp_path, monkeypatch
):
    monkeypatch.setattr("layerwise.verbs.scan.forecast.Forecast.require_fit", refuse)
    monkeypatch.setattr(module, "open_engine", None)
    with pytest.raises(TooLarge, match="too large"):
        layerwise.scan(tiny_llama, word_texts, metrics="curvature", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def refuse(forecast):
    raise TooLarge("too large")


def test_several_scans_share_an_open_engine_and_a_lease_that_is_held(tiny_llama, word_texts, tmp_path):
    plan, source, _ = prepare(ScanOptions(tiny_llama, word_texts, metrics="curvature"), threads=1)
    events, asked = [], []
    with open_engine("local", tiny_llama, None) as engine:
        tables = [
            module.execute(
                tiny_llama, plan, source, engine=engine, folder=folder, require_lease=lambda: asked.append(1),
                on_start=lambda: events.append("start"), on_batch=lambda examples, tokens: events.append(examples),
            )
            for folder in (None, open_folder(tmp_path / "run"))
        ]  # fmt: skip
    saved = layerwise.LayerTable.load(tmp_path / "run")
    nowhere, kept, read = ([(s.identity, s.value) for s in table] for table in (*tables, saved))
    assert nowhere == kept == read
    assert events[0] == "start" and sum(n for n in events if n != "start") == 2 * len(word_texts)
    assert len(asked) == len(events) - 2, "the lease is looked at with every batch"
    assert not list((tmp_path / "run").glob("lease-*"))

"""Campaigns of thousands: several processes at once, one table that grows, its status, and reports of many models."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import layerwise
from layerwise.__main__ import main
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder, open_folder
from layerwise.runs.leases import LeaseLost, Leases, lease_files
from layerwise.runs.ownership import claim
from layerwise.runs.quantiles import MAX_MODELS, runs_by_model
from layerwise.runs.table import LayerTable, parse_conditions
from layerwise.verbs.campaign import api, joined
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.campaign.status import counts, statuses


@pytest.fixture
def file(tiny_llama, tiny_bert, tmp_path):
    """A campaign of two models and two settings."""
    path = tmp_path / "campaign.yaml"
    settings = {"one": {"metrics": "curvature"}, "two": {"metrics": "dataset_entropy"}}
    content = {"out": str(tmp_path / "out"), "models": [tiny_llama, tiny_bert], "settings": settings}
    path.write_text(yaml.safe_dump(content | {"data": {"few": {"data": "demo", "limit": 7}}}))
    return path


@pytest.fixture
def folder(tmp_path):
    return DiskFolder(tmp_path / "scan")


def leases(**settings):
    """The leases of a process whose clock is set by hand."""
    now = [0.0]
    return Leases(clock=lambda: now[0], **settings), now


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return {"process": {**json.loads(Leases().content())["process"], "pid": process.pid}}


# Leases


def test_of_many_threads_one_gets_the_lease(folder):
    takers = [Leases() for _ in range(8)]
    results = []
    start = threading.Barrier(8)

    def attempt(taker):
        start.wait()
        results.append(taker.take(folder))

    threads = [threading.Thread(target=attempt, args=[taker]) for taker in takers]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results.count(True) == 1 and len(lease_files(folder)) == 1


def test_a_lease_is_taken_over_when_it_does_not_change_for_long_enough_by_the_takers_own_clock(folder):
    first, _ = leases()
    second, now = leases(patience=100)
    assert first.take(folder) and not second.take(folder)
    now[0] = 99
    assert not second.take(folder)
    first.beats += 1  # a sign of life
    folder.write(lease_files(folder)[-1], first.content())
    now[0] = 101
    assert second.shows_life(folder) and not second.take(folder)
    now[0] = 202
    assert second.take(folder) and lease_files(folder) == ["lease-00002.json"]


def test_the_lease_of_a_process_that_ended_on_this_machine_is_taken_over_at_once(folder):
    folder.write("lease-00003.json", json.dumps(dead_process()).encode())
    assert Leases().take(folder) and lease_files(folder) == ["lease-00004.json"]


def test_a_damaged_lease_is_taken_over_after_a_while(folder):
    folder.write("lease-00001.json", b"{")
    taker, now = leases()
    assert not taker.take(folder)
    now[0] = 1000
    assert taker.take(folder)


def test_who_lost_its_lease_notices_it_and_leaves_the_other_one_alone(folder):
    with Leases(beat=0.01) as slow:
        assert slow.take(folder)
        folder.write("lease-00002.json", Leases().content())
        slow.ended.wait(0.5)
        with pytest.raises(LeaseLost, match="taken over"):
            slow.require(folder)
        slow.release(folder)
    assert lease_files(folder) == ["lease-00001.json", "lease-00002.json"]


def test_leases_show_life_and_are_given_back_at_the_end(folder):
    with Leases(beat=0.01) as holder:
        holder.take(folder)
        before = folder.read("lease-00001.json")
        holder.ended.wait(0.5)
        assert folder.read("lease-00001.json") != before
    assert folder.entries() == []


# Several processes


def claim_cell(plan, cell):
    """The folder of a scan, as a process that begins it leaves it."""
    api.claim(open_folder(plan.out), "campaign")
    api.claim(plan.folder(cell), "scan")
    return plan.folder(cell)


@pytest.mark.long
def test_two_processes_share_the_scans_and_each_is_run_once(file, tmp_path):
    alone = layerwise.campaign(replace(Campaign.load(file), out=str(tmp_path / "alone")))
    command = [sys.executable, "-m", "layerwise", "campaign", str(file)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(2)]
    printed = b"".join(process.communicate(timeout=300)[1] for process in processes).decode()
    assert [process.returncode for process in processes] == [0, 0]
    finished = [line for line in printed.splitlines() if line.startswith("done ")]
    assert len(finished) == 4
    pd.testing.assert_frame_equal(LayerTable.load(tmp_path / "out").to_pandas(), alone.to_pandas(), check_exact=True)
    assert not list((tmp_path / "out").rglob("lease-*"))


def test_a_scan_that_another_process_runs_is_left_to_it(file, tmp_path, capsys, monkeypatch):
    plan = Campaign.load(file)
    monkeypatch.setattr(api, "Leases", lambda: Leases(beat=0.01))
    with Leases(beat=0.02) as other:
        claim_cell(plan, plan.cells[0])
        assert other.take(plan.folder(plan.cells[0]))
        assert main(["campaign", str(file)]) == 0
        printed = capsys.readouterr().err
        assert printed.count("done ") == 3 and "1 of 4 scans are being run by other processes" in printed
        assert counts(statuses(plan)) == {"done": 3, "running": 1, "failed": 0, "waiting": 0}
    assert main(["campaign", str(file)]) == 0 and len(LayerTable.load(plan.out).run["cells"]) == 4


def test_the_scan_of_a_killed_process_is_done_by_the_next(file):
    plan = Campaign.load(file)
    place = claim_cell(plan, plan.cells[0])
    place.write("lease-00001.json", json.dumps(dead_process()).encode())
    assert len(layerwise.campaign(file).run["runs"]) == 4
    assert lease_files(place) == []


# The table


def test_a_campaign_that_goes_on_reads_new_scans_only(file, monkeypatch):
    layerwise.campaign(file)
    reads = []
    real = joined.read_part
    monkeypatch.setattr(joined, "read_part", lambda name, *rest: (reads.append(name), real(name, *rest))[1])
    whole = layerwise.campaign(file).to_pandas()
    assert reads == []
    plan = Campaign.load(file)
    (Path(str(plan.folder(plan.cells[2]))) / "run.json").unlink()
    pd.testing.assert_frame_equal(layerwise.campaign(file).to_pandas(), whole, check_exact=True)
    assert reads == [plan.cells[2].name]


def test_a_damaged_table_is_made_again(file):
    whole = layerwise.campaign(file).to_pandas()
    out = Path(Campaign.load(file).out)
    for name, data in (("table.parquet", b"PAR1"), ("run.json", b"{}")):
        (out / name).write_bytes(data)
        pd.testing.assert_frame_equal(layerwise.campaign(file).to_pandas(), whole, check_exact=True)


def test_a_foreign_table_in_a_scan_is_refused(file):
    layerwise.campaign(file)
    plan = Campaign.load(file)
    place = Path(str(plan.folder(plan.cells[1])))
    data = (place / "table.parquet").read_bytes()
    (place / "table.parquet").write_bytes(data.replace(b"PAR1", b"PAR1x", 1))
    (place / "run.json").write_text((place / "run.json").read_text() + " ")
    with pytest.raises(RunError, match="damaged"):
        layerwise.campaign(file)


# Status


def test_status_says_what_is_done_and_why_something_failed(file, tmp_path, capsys):
    plan = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(plan | {"models": [*plan["models"], str(tmp_path / "no<model>")]}))
    assert main(["campaign", str(file), "--status"]) == 0
    assert capsys.readouterr().out == "0 done, 0 running, 0 failed, 6 waiting\n"
    assert main(["campaign", str(file)]) == 2
    capsys.readouterr()
    assert main(["campaign", str(file), "--status"]) == 0
    first, *failed = capsys.readouterr().out.splitlines()
    assert first == "4 done, 0 running, 2 failed, 0 waiting"
    assert len(failed) == 2 and all("no<model>" in line and "failed" in line for line in failed)
    page = (tmp_path / "out" / "status.html").read_text()
    assert "4 of 6 scans done" in page and page.count('<i class="done"') == 5 and "no<model>" not in page
    assert main(["campaign", str(file), "--status", "--json"]) == 0
    assert [entry["status"] for entry in json.loads(capsys.readouterr().out)] == ["done"] * 4 + ["failed"] * 2


def test_a_status_page_that_is_not_ours_is_left_alone(file, tmp_path):
    assert main(["campaign", str(file)]) == 0
    (tmp_path / "out" / "status.html").write_text("my notes")
    assert main(["campaign", str(file)]) == 0
    assert (tmp_path / "out" / "status.html").read_text() == "my notes"


# Conditions and quantiles


def made_up_models(table, count, layers=None):
    """The same rows under many names, with values of their own; `layers` gives each model a depth of its own."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(count):
        for row in table:
            depth = layers(number) if layers else round(row.layer / row.depth) if row.depth else 4
            if row.layer <= depth:
                change = {"model": f"m{number}", "model_hash": f"{number:032x}", "value": rng.normal()}
                rows.append(replace(row, **change, depth=row.layer / depth))
    return LayerTable(tuple(rows), {"kind": "joined", "runs": []})


def require_equal(left, right):
    pd.testing.assert_frame_equal(left.to_pandas(), right.to_pandas(), check_exact=True)


@pytest.fixture(scope="module")
def scanned(tiny_bert):
    return layerwise.scan(tiny_bert, layerwise.texts("demo", limit=5), metrics="curvature,dataset_entropy")


def test_quantiles_are_those_of_numpy_layer_by_layer(scanned, tmp_path):
    table = made_up_models(scanned, MAX_MODELS + 3)
    table.save(tmp_path / "run")
    frame = table.to_pandas()
    runs = runs_by_model(tmp_path / "run", {"metric": ["curvature"], "norm": ["raw"]})
    assert [run.table.scores[0].model.split(" of")[0] for run in runs] == [
        "lowest",
        "10 %",
        "median",
        "90 %",
        "highest",
    ]
    wanted = frame[(frame.metric == "curvature") & (frame.norm == "raw") & (frame.layer == 1)]
    for run, share in zip(runs, (0, 0.1, 0.5, 0.9, 1), strict=True):
        found = [row.value for row in run.table if row.layer == 1 and row.rows == wanted.rows.iloc[0]]
        assert found[0] == pytest.approx(np.quantile(wanted[wanted.rows == wanted.rows.iloc[0]].value, share))
    in_memory = runs_by_model(table, {"metric": ["curvature"], "norm": ["raw"]})
    for left, right in zip(in_memory, runs, strict=True):
        require_equal(left.table, right.table)


def test_models_of_different_depth_are_compared_at_the_same_share_of_their_depth(scanned):
    deepest = max(row.layer for row in scanned)
    table = made_up_models(scanned, MAX_MODELS + 2, layers=lambda number: deepest - number % 2)
    straight = LayerTable(tuple(replace(row, value=row.depth) for row in table), table.run)
    (median,) = [run.table for run in runs_by_model(straight) if "median" in run.table.scores[0].model]
    raw = [row for row in median if row.norm == "raw" and row.metric == "curvature"]
    assert [row.layer for row in raw[:21]] == list(range(21))
    assert [row.value for row in raw[:21]] == pytest.approx([k / 20 for k in range(21)])


def test_few_models_are_shown_as_they_are(scanned, tmp_path):
    made_up_models(scanned, 3).save(tmp_path / "run")
    assert [run.table.scores[0].model for run in runs_by_model(tmp_path / "run")] == ["m0", "m1", "m2"]


def test_a_report_of_many_models_is_small_and_one_of_them_can_be_asked_for(scanned, tmp_path):
    made_up_models(scanned, MAX_MODELS + 1).save(tmp_path / "run")
    everything = layerwise.report(tmp_path / "run", html=tmp_path / "all.html")
    assert "median of 101 models" in everything.read_text() and everything.stat().st_size < 500_000
    assert main(["report", str(tmp_path / "run"), "--where", "model=m7", "--html", str(tmp_path / "one.html")]) == 0
    text = (tmp_path / "one.html").read_text()
    assert "m7" in text and "median of" not in text and "--where model=m7" in text


def test_conditions_choose_rows_when_a_table_is_read(scanned, tmp_path):
    table = made_up_models(scanned, 4)
    table.save(tmp_path / "run")
    conditions = parse_conditions(["model=m1", "model=m3", "layer=2", "normalize=False"])
    assert conditions == {"model": ["m1", "m3"], "layer": [2], "normalize": [False]}
    found = LayerTable.load(tmp_path / "run", conditions)
    assert {row.model for row in found} == {"m1", "m3"}
    require_equal(found, table.where(**conditions))
    require_equal(LayerTable.load(tmp_path / "run", {"model": "m2"}), table.where(model="m2"))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("metric", "write COLUMN=VALUE"),
        ("colour=red", "unknown column colour"),
        ("layer=three", "layer is a number"),
        ("normalize=yes", "True or False"),
        ("model=m9", "no row has model m9; there are m0, m1"),
    ],
)
def test_conditions_that_cannot_be_met_are_refused(scanned, tmp_path, condition, message):
    made_up_models(scanned, 2).save(tmp_path / "run")
    with pytest.raises(InputError, match=message):
        LayerTable.load(tmp_path / "run", parse_conditions([condition]))


def test_reading_a_table_keeps_equal_strings_once(scanned, tmp_path):
    scanned.save(tmp_path / "run")
    first, second, *_ = LayerTable.load(tmp_path / "run")
    assert first.model is second.model and os.fspath(first.model)


def test_a_process_that_finds_all_scans_running_elsewhere_prints_their_status(file, capsys, monkeypatch):
    plan = Campaign.load(file)
    monkeypatch.setattr(api, "Leases", lambda: Leases(beat=0.01))
    claim(open_folder(plan.out), "campaign")
    with Leases(beat=0.01) as others:
        for cell in plan.cells:
            claim(plan.folder(cell), "scan")
            assert others.take(plan.folder(cell))
        assert main(["campaign", str(file)]) == 0
        printed = capsys.readouterr().out
        assert "4 running" in printed
        assert main(["campaign", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == []

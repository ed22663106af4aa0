"""Opening, querying and reporting a campaign folder with thousands of runs: seconds and memory of each step.

    python benchmarks/campaign.py MODEL [--runs 10000] [--out campaign.csv]

One real scan of MODEL is copied under other names, with values of its own, so that the folder looks as after a campaign
over so many checkpoints. Each step runs in a process of its own.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import yaml

import layerwise
from layerwise.core.files import open_folder
from layerwise.core.formats import json_bytes, parquet_bytes
from layerwise.runs.ownership import MARKER, claim
from layerwise.runs.records import CELL, RUN
from layerwise.runs.table import TABLE_FILE, LayerTable, arrow_table
from layerwise.verbs.campaign.api import run_campaign
from layerwise.verbs.campaign.plan import Campaign
from layerwise.verbs.campaign.status import counts, statuses

QUERY = """SELECT model, revision, arg_min(layer, value) AS layer, min(value) AS value FROM '{out}/table.parquet'
WHERE metric = 'prompt_entropy' AND norm = 'raw' AND tokens = 'all' GROUP BY model, revision"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        print(json.dumps(measure(STEPS[args.step], Path(args.model))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_campaign(folder, args.model, args.runs)
        rows = []
        for step in STEPS:
            printed = subprocess.run(
                [sys.executable, __file__, str(folder), "--step", step], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
            rows.append({"runs": args.runs, "step": step} | json.loads(printed.splitlines()[-1]))
            print(rows[-1], flush=True)
    if args.out:
        pd.DataFrame(rows).to_csv(args.out, index=False)


def make_campaign(folder: Path, model: str, runs: int) -> None:
    """A finished campaign over `runs` made-up checkpoints, without its table."""
    scanned = layerwise.scan(model, layerwise.texts("demo", limit=64), metrics="fast")
    checkpoints = [f"step{number}" for number in range(100)]
    models = [{"name": f"lab/model-{number}", "revisions": list(checkpoints)} for number in range(runs // 100)]
    (folder / "campaign.yaml").write_text(
        yaml.safe_dump({"out": str(folder / "out"), "models": models, "settings": {"default": {"metrics": "fast"}}})
    )
    plan = Campaign.load(folder / "campaign.yaml")
    claim(open_folder(plan.out), "campaign")
    rng = random.Random(0)
    for cell in plan.cells:
        identity = {"model": cell.model.name, "revision": str(cell.model.revision)}
        identity["model_hash"] = f"{rng.getrandbits(128):032x}"
        scores = tuple(replace(row, **identity, value=row.value * rng.uniform(0.9, 1.1)) for row in scanned)
        record = dict(scanned.run) | {"model": dict(scanned.run["model"])}
        record["model"] |= {"name": cell.model.name, "revision": str(cell.model.revision)}
        record["model"]["fingerprint"] = identity["model_hash"]
        files = {
            MARKER: json_bytes({"schema_version": 1, "kind": "scan"}),
            CELL.file: CELL.dump(cell.record() | {"data_hash": "", "model_hash": ""}),
            TABLE_FILE: parquet_bytes(arrow_table(scores)),
            RUN.file: RUN.dump(record),
        }
        place = Path(str(plan.folder(cell)))
        place.mkdir(parents=True)
        for name, data in files.items():  # not with layerwise's own functions, which wait for the disk after each file
            (place / name).write_bytes(data)


def collect(folder: Path) -> object:
    """What `layerwise campaign` does when every scan is done: checks each of them and joins the tables."""
    run_campaign(plan := Campaign.load(folder / "campaign.yaml"), lambda event: None)
    return f"{(Path(plan.out) / TABLE_FILE).stat().st_size / 1e6:.1f} MB"


def query(folder: Path) -> object:
    import duckdb

    return len(duckdb.sql(QUERY.format(out=folder / "out")).df())


def load(folder: Path) -> object:
    return len(LayerTable.load(folder / "out"))


def report(folder: Path) -> object:
    page = layerwise.report(folder / "out", html=folder / "report.html", overwrite=True)
    return f"{page.stat().st_size / 1e6:.1f} MB"


def load_some(folder: Path) -> object:
    return len(LayerTable.load(folder / "out", {"metric": "prompt_entropy", "norm": "raw"}))


def status(folder: Path) -> object:
    return counts(statuses(Campaign.load(folder / "campaign.yaml")))["done"]


STEPS = {
    "join the tables": collect,
    "join them again": collect,
    "status of every run": status,
    "query with DuckDB": query,
    "open one metric": load_some,
    "open the whole table": load,
    "write the report": report,
}


def measure(step: object, folder: Path) -> dict[str, object]:
    began, cpu_began = time.monotonic(), time.process_time()
    result = step(folder)  # type: ignore[operator]
    seconds = {
        "seconds": round(time.monotonic() - began, 1),
        "CPU seconds": round(time.process_time() - cpu_began, 1),
    }
    # Not ru_maxrss, which starts with the memory of the parent process.
    (peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return seconds | {"peak memory, GB": round(int(peak.split()[1]) / 1e6, 2), "result": result}


if __name__ == "__main__":
    main()

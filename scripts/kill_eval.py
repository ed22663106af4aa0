"""Kills an evaluation at random moments until it finishes, and holds its table against an undisturbed one.

python scripts/kill_eval.py MODEL DATA_ROOT TASKS [--kills 10] [--workers 2]
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from layerwise.runs.table import LayerTable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("root")
    parser.add_argument("tasks")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp())

    def start(out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "layerwise", "eval", args.model, "--tasks", args.tasks]
        command += ["--data-root", args.root, "--out", str(folder / out), "--workers", args.workers]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    began = time.monotonic()
    assert start("whole").wait() == 0
    whole, seconds = LayerTable.load(folder / "whole"), time.monotonic() - began
    print(f"undisturbed: {seconds:.0f} s, {whole.run['forwarded_texts']} texts forwarded, {len(whole)} scores")
    moments = random.Random(args.seed)
    kills = 0
    while True:
        process = start("killed")
        try:
            code = process.wait(moments.uniform(0.2, 0.9) * seconds if kills < args.kills else None)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            done = len(list((folder / "killed").glob("*/scores/*/*.json")))
            print(f"kill {kills}: {done} of {len(whole)} scores were there")
            continue
        assert code == 0
        break
    killed = LayerTable.load(folder / "killed")
    keys = ["metric", "layer", "norm", "tokens", "pooling"]
    tables = [t.to_pandas().set_index(keys).value.sort_index() for t in (whole, killed)]
    pd.testing.assert_series_equal(*tables, check_exact=True)
    segments = [len(list((folder / name).glob("*/vectors/*/segment-*"))) for name in ("whole", "killed")]
    print(f"after {kills} kills: the same table, bit by bit; vector segments {segments[0]} and {segments[1]}")


if __name__ == "__main__":
    main()

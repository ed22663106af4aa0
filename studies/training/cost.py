"""How well the predicted seconds of a scan agree with what the callback measures: five pairs per model, one thread.

python studies/training/cost.py MODELS/all-minilm-l6-v2 MODELS/stories15m        # cost.csv
"""

import csv
import statistics
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

import layerwise
from layerwise.training.options import WatchOptions
from layerwise.training.watch import open_watch

PAIRS = 5
time.perf_counter = time.process_time  # with one thread: what an idle machine would take, whatever else runs here


def main() -> None:
    rows = []
    for folder in map(Path, sys.argv[1:]):
        model = (AutoModel.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder))
        watch = open_watch(model, layerwise.texts("demo", limit=100), WatchOptions(max_length=64, batch_tokens=1024))
        watch.scan(0)  # the first pass of a process is slower
        for pair in range(1, PAIRS + 1):
            predicted, before = watch.predicted_seconds(), watch.seconds
            watch.scan(pair)
            measured = watch.seconds - before
            values = {"predicted": predicted, "measured": measured, "ratio": measured / predicted}
            rows.append({"model": folder.name, "pair": pair} | {name: f"{value:.3f}" for name, value in values.items()})
        ratios = [float(row["ratio"]) for row in rows if row["model"] == folder.name]
        print(folder.name, "median ratio", f"{statistics.median(ratios):.3f}", ratios)
    with Path(__file__).with_name("cost.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""The command `layerwise scan` against a loop in memory over the same batches, and its cost by the number of prompts.

    python -m benchmarks.whole_scan MODEL [--prompts 10000] [--rounds 3] [--out whole_scan.csv]
    python -m benchmarks.whole_scan MODEL --prompts 1000 10000 100000 --rounds 1 --ways command

Every prompt has 64 tokens. `command` is the whole command in a process of its own, from its start to the run folder on
disk. `loop` is a process that has the tokens in memory and passes batch after batch to the same readings; only that
loop is timed. Both use one thread and take turns. CPU seconds are those of the process.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LENGTH, BATCH_TOKENS = 64, 4096
WORDS = "once upon a time there was little girl who had red ball and she went to the park with her dog mom said".split()


def write_texts(path: Path, count: int) -> None:
    """Texts of more than 64 tokens, which are cut, all different."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(f"{number} {' '.join(draw.choices(WORDS, k=LENGTH))}\n")


def run_loop(model: str, texts: Path) -> dict[str, float]:
    """In a process of its own: the readings of all batches, without reading, tokenizing, saving or scoring."""
    import torch

    from benchmarks.overhead import consumer_of
    from layerwise.inputs.source import Example
    from layerwise.models.load import ModelSpec, load_network
    from layerwise.passes.batches import make_batch, make_groups, network_processor
    from layerwise.passes.tapped_pass import run_batch

    torch.set_num_threads(1)
    network = load_network(ModelSpec(model))
    layers = tuple(range(network.depth + 1))
    lines = texts.read_text(encoding="utf-8").splitlines()
    prepared = network_processor(network).prepare([Example(str(i), line) for i, line in enumerate(lines)], LENGTH)
    groups = list(make_groups(prepared, BATCH_TOKENS))
    consumer = consumer_of(network)
    wall, cpu = time.perf_counter(), time.process_time()
    for group in groups:
        run_batch(network, make_batch(network, group), layers, consumer)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "megabytes": peak_megabytes()}


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def run_command(model: str, texts: Path, folder: str) -> dict[str, float]:
    out = Path(folder) / f"run-{time.monotonic_ns()}"
    words = ["scan", model, "--data", str(texts), "--max-length", str(LENGTH), "--threads", "1", "--out", str(out)]
    wall = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "layerwise", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the command failed: layerwise {' '.join(words)}")
    seconds = {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.perf_counter() - wall}
    return seconds | {"megabytes": usage.ru_maxrss / 1e3}


def start_loop(model: str, texts: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.whole_scan", model, "--loop", str(texts)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, stderr=subprocess.DEVNULL))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--prompts", nargs="+", type=int, default=[10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--ways", nargs="+", choices=["command", "loop"], default=["command", "loop"])
    parser.add_argument("--loop", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        print(json.dumps(run_loop(args.model, args.loop)))
        return
    import pandas as pd

    os.environ["OMP_NUM_THREADS"] = "1"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for count in args.prompts:
            texts = Path(folder) / f"{count}.txt"
            write_texts(texts, count)
            for number in range(args.rounds):
                for way in args.ways:
                    figures = (
                        run_command(args.model, texts, folder) if way == "command" else start_loop(args.model, texts)
                    )
                    row = {"model": Path(args.model).name, "prompts": count, "round": number, "way": way, **figures}
                    rows.append(row)
                    print(
                        ", ".join(f"{k} {v:,.1f}" if isinstance(v, float) else f"{v}" for k, v in row.items()),
                        flush=True,
                    )
            pd.DataFrame(rows).round(2).to_csv(args.out, index=False)


if __name__ == "__main__":
    main()

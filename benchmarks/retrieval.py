"""Memory and time of a retrieval task by the number of its documents, with a tiny model.

    python benchmarks/retrieval.py MODEL [--documents 10000 100000 1000000] [--queries 1000] [--out retrieval.csv]

Documents are made up of eight common words each, and every query is one of them with a word left out. Each size runs in
a process of its own; its memory is sampled twice a second.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

import pandas as pd
import psutil

import layerwise

WORDS = "time year people way day man thing woman life child world school state family student group country".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        score(args.model, args.folder)
        return
    rows = []
    for count in args.documents:
        with tempfile.TemporaryDirectory() as folder:
            write_task(Path(folder), count, args.queries)
            words = [sys.executable, __file__, args.model, "--folder", folder]
            rows.append({"documents": count, "queries": args.queries} | run(words))
            print(rows[-1], flush=True)
            if args.out:
                pd.DataFrame(rows).to_csv(args.out, index=False)


def write_task(folder: Path, documents: int, queries: int) -> None:
    rng = random.Random(0)
    texts = [f"{' '.join(rng.choices(WORDS, k=8))} {number}" for number in range(documents)]
    per_query = documents // queries
    rows = []
    for number in range(queries):
        positive, *negative = texts[number * per_query : (number + 1) * per_query]
        words = positive.split()
        del words[rng.randrange(8)]
        rows.append({"query": " ".join(words), "positive": [positive], "negative": negative})
    pd.DataFrame(rows).to_parquet(folder / "test.parquet")
    layerwise.lab.data(folder / "root", "Made", type="Retrieval", test=folder / "test.parquet")


def score(model: str, folder: Path) -> None:
    began = time.monotonic()
    table = layerwise.eval(
        model, "Made", data_root=folder / "root", out=folder / "run", layers="last", max_length=32, threads=1
    )
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(use.ru_utime + use.ru_stime for use in used)
    seconds = {"seconds": round(time.monotonic() - began, 1), "CPU seconds": round(cpu, 1)}
    print(json.dumps(seconds | {"score": [row.value for row in table][-1]}))


def run(words: list[str]) -> dict[str, float]:
    """What the process printed, and the most memory that it used."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    peak = [0]

    def watch() -> None:
        seen = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                peak[0] = max(peak[0], sum(p.memory_info().rss for p in (seen, *seen.children(recursive=True))))
            except psutil.Error:
                pass
            time.sleep(0.5)

    watcher = Thread(target=watch)
    watcher.start()
    printed, _ = process.communicate()
    watcher.join()
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found | {"peak memory, GB": round(peak[0] / 1e9, 2)}


if __name__ == "__main__":
    main()

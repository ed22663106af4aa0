"""One process, many scans, evaluations, embeddings, picks, exports and reports with changing models: memory,
descriptors and threads must stay flat. With --texts, one scan of so many texts, whose memory must not grow with them.

python scripts/soak.py --minutes 60
python scripts/soak.py --texts 2000000
"""

import argparse
import contextlib
import gc
import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
GROWTH = 0.05  # share of memory by which the last quarter may exceed the second


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--texts", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.chdir(folder)
        return many_texts(args.texts) if args.texts else many_calls(args.minutes)


def sizes() -> tuple[float, int, int]:
    """Megabytes, descriptors and threads of this process."""
    process = psutil.Process()
    return process.memory_info().rss / 1e6, process.num_fds(), threading.active_count()


def many_calls(minutes: float) -> int:
    from abuse.desk import DATA, EVAL, desk_for, make_models

    os.chdir(desk_for(Path("desk"), *make_models(Path("models"))))
    call(["lab", "data", "tasks", "Mine", "--type", "STS", "--test", "pairs.csv"])
    samples, until, number = [], time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until:
        for model in ("model", "other"):
            out = f"run-{number}"
            commands = (
                ["scan", model, *DATA, "--metrics", "fast", "--out", out],
                ["eval", model, *EVAL, "--out", f"{out}-scores"],
                ["embed", model, *DATA, "--layers", "1", "--out", f"{out}.parquet"],
                ["pick", out, "--rule", "depth:50%", "--save", out],
                ["export", model, "--layer", f"{out}:auto", "--out", f"{out}-model"],
                ["report", out, "--html", f"{out}.html"],
            )
            for words in commands:
                call(words)
            number += len(commands)
        gc.collect()
        samples.append(sizes())
        if len(samples) % 10 == 1:
            print(f"{number:,} calls: %.0f MB, %d descriptors, %d threads" % samples[-1], flush=True)
    return verdict(samples, f"{number:,} calls")


def call(words: list[str]) -> None:
    import layerwise.__main__ as cli

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = cli.main(words)
    if code:
        raise SystemExit(f"{words}: {said.getvalue()}")


def many_texts(count: int) -> int:
    from abuse.desk import make_models

    import layerwise

    model = make_models(Path("models"))[0]
    with open("texts.txt", "w", encoding="utf-8") as file:
        for i in range(count):
            file.write(" ".join(f"w{(i * 31 + j * (i % 89 + 1)) % 93}" for j in range(3 + i % 5)) + f" {i}\n")
    samples, ended = [], threading.Event()

    def watch() -> None:
        while not ended.wait(2.0):
            samples.append(sizes())

    threading.Thread(target=watch, daemon=True).start()
    began = time.monotonic()
    table = layerwise.scan(model, "texts.txt", metrics="fast", out="run", threads=1)
    ended.set()
    print(f"{table.run['data']['prompts']:,} texts in {(time.monotonic() - began) / 60:.1f} min")
    return verdict(samples, f"{count:,} texts")


def quarters(samples: list[tuple[float, int, int]]) -> Iterator[list[tuple[float, int, int]]]:
    size = max(1, len(samples) // 4)
    for number in range(4):
        yield samples[number * size : (number + 1) * size]


def verdict(samples: list[tuple[float, int, int]], what: str) -> int:
    """Compares the last quarter with the second; the first one fills caches.

    Of memory, the most counts; of descriptors and threads the median, since a file that is being written is open for a
    moment.
    """
    _, second, _, last = quarters(samples)
    if not second or not last:
        print("too short to tell")
        return 2
    found = [
        tuple(measure(s[i] for s in part) for part in (second, last)) for i, measure in enumerate((max, median, median))
    ]
    flat = found[0][1] <= found[0][0] * (1 + GROWTH) and all(after <= before for before, after in found[1:])
    names = ("MB", "descriptors", "threads")
    changes = ", ".join(f"{a:.0f} -> {b:.0f} {name}" for (a, b), name in zip(found, names, strict=True))
    print(f"{what}: second quarter -> last quarter: {changes}: {'flat' if flat else 'NOT FLAT'}")
    return int(not flat)


if __name__ == "__main__":
    sys.exit(main())

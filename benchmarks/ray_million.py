"""A long stream of short prompts through Ray: memory of the driver and the workers, and the pace, as it goes.

python benchmarks/ray_million.py MODEL [--prompts 1000000] [--workers 2] [--out curve.csv]
"""

import argparse
import csv
import random
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil

import layerwise
from layerwise.inputs.source import Source

WORDS = "the a one small big red old cat dog girl boy tree sun day ran saw had went said and to in with her his".split()


def prompts(number: int) -> Iterator[tuple[None, str]]:
    """Short prompts of four to nine words, some of them repeated, made as they are asked for."""
    words = random.Random(0)
    for _ in range(number):
        yield None, " ".join(words.choices(WORDS, k=words.randint(4, 9)))


def workers() -> list[psutil.Process]:
    found = [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [""])[0].startswith("ray::Worker")]
    return sorted(found, key=lambda process: process.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shard-size", type=int, default=4096)
    parser.add_argument("--out", default="-")
    args = parser.parse_args()
    driver = psutil.Process()
    file = sys.stdout if args.out == "-" else open(args.out, "w")  # noqa: SIM115
    table = csv.writer(file)
    table.writerow(["seconds", "prompts", "driver_mb", *(f"worker_{i}_mb" for i in range(args.workers))])
    began, every = time.monotonic(), args.prompts // 50
    seen = 0

    def watched() -> Iterator[tuple[None, str]]:
        nonlocal seen
        for row in prompts(args.prompts):
            seen += 1
            if seen % every == 0:
                sizes = [round(process.memory_info().rss / 1e6) for process in [driver, *workers()]]
                table.writerow([round(time.monotonic() - began, 1), seen, *sizes])
                file.flush()
            yield row

    # The forecast goes through the first texts as well: it is given others of the same kind.
    passes = iter([prompts(64), prompts(20_000)])
    source = Source("short prompts", lambda: next(passes, None) or watched())
    options = {"shard_size": args.shard_size, "batch_tokens": 8192, "keep_prompts": "none"}
    with tempfile.TemporaryDirectory() as out:
        result = layerwise.scan(args.model, source, out=out, engine=layerwise.Cluster(workers=args.workers), **options)
    print(f"{result.run['data']['prompts']} prompts in {result.run['seconds']:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

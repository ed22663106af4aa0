"""What Ray costs once it runs: the same shards by N plain processes and by N Ray workers, in turns; median ratios.

    python benchmarks/ray_overhead.py MODEL DATA [--workers 1 2] [--shards 40] [--shard-size 64] [--minutes 5]

Starting processes and loading the model are left out on both sides; reading data, computing, writing states, merging
and checkpoints are in. The plain processes each do every N-th shard with the local engine.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from layerwise.core.files import open_folder
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.local import LocalEngine
from layerwise.engines.opening import open_engine
from layerwise.engines.options import Cluster
from layerwise.engines.shards import torch_threads
from layerwise.inputs.source import Example
from layerwise.inputs.text import texts
from layerwise.models.load import ModelSpec, load_network
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan.prepare import prepare
from layerwise.verbs.scan.shards import ScanShardFunction
from layerwise.verbs.scan.state import ScanState


def run_shards(engine: Any, plan: Any, shards: list[list[Example]], out: Path) -> float:
    """Seconds that an engine takes for all shards, to the last checkpoint."""
    began = time.monotonic()
    origin = {"plan": plan.fingerprint(), "model": engine.identity.fingerprint, "dtype": plan.dtype}
    with torch_threads(plan.threads):
        work, checkpoint = ScanShardFunction(plan, origin, 0), Checkpoint(open_folder(out), ScanState.parse, 30.0)
        engine.run_shards(shards, work, checkpoint)
    return time.monotonic() - began


def plain_process(model: str, options: ScanOptions, shards: list[list[Example]], pipe: Any) -> None:
    """Loads the model, then does all its shards each time it is told where to."""
    network = load_network(ModelSpec(model))
    engine, (plan, _, _) = LocalEngine(network, network.identity()), prepare(model, ["x"], options, threads=1)
    pipe.send("ready")
    while (out := pipe.recv()) is not None:
        pipe.send(run_shards(engine, plan, shards, out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--shard-size", type=int, default=64)
    parser.add_argument("--metrics", default="fast")
    parser.add_argument("--minutes", type=float, default=5)
    args = parser.parse_args()
    options = ScanOptions(metrics=args.metrics, shard_size=args.shard_size, threads=1)
    examples = list(texts(args.data, limit=args.shards * args.shard_size))
    shards = [examples[i : i + args.shard_size] for i in range(0, len(examples), args.shard_size)]
    plan, _, _ = prepare(args.model, ["x"], options, threads=1)
    folder = Path(tempfile.mkdtemp(prefix="ray-overhead-"))
    context = multiprocessing.get_context("spawn")
    for workers in args.workers:
        pipes = []
        for i in range(workers):
            here, there = context.Pipe()
            context.Process(target=plain_process, args=(args.model, options, shards[i::workers], there)).start()
            pipes.append(here)
        assert all(pipe.recv() == "ready" for pipe in pipes)
        plain: list[float] = []
        on_ray: list[float] = []
        with open_engine(Cluster(workers=workers), args.model, folder) as engine:
            for turn in count():
                for i, pipe in enumerate(pipes):
                    pipe.send(folder / f"plain-{workers}-{turn}-{i}")
                plain.append(max(pipe.recv() for pipe in pipes))
                on_ray.append(run_shards(engine, plan, shards, folder / f"ray-{workers}-{turn}"))
                if turn >= 2 and sum(plain) + sum(on_ray) >= 60 * args.minutes:
                    break
        for pipe in pipes:
            pipe.send(None)
        ratios = sorted(r / p for r, p in zip(on_ray[1:], plain[1:], strict=True))  # the first turn warms up
        print(
            f"{workers} processes, {len(shards)} shards of {statistics.median(plain) * workers / len(shards):.2f} s, "
            f"{len(ratios)} turns: plain {statistics.median(plain[1:]):.1f} s, "
            f"Ray {statistics.median(on_ray[1:]):.1f} s, ratio {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f})",
            flush=True,
        )


if __name__ == "__main__":
    main()

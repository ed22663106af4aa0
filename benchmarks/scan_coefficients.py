"""Coefficients of the cost model in README.md on this machine: views, tokens, forward, readings, states, merging, disk.

    python benchmarks/scan_coefficients.py MODEL DATA [--texts 256] [--repeats 5]

Times are CPU times of one thread, which neighbours on the machine hardly change; only files are timed by the clock.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from layerwise.core.files import open_folder
from layerwise.inputs.perturbations.text import make_view
from layerwise.inputs.source import Source
from layerwise.inputs.text import texts
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.batches import make_batch, make_groups, network_processor
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan.prepare import prepare
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.worker import scan_shard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    network = load_network(ModelSpec(args.model))
    source = texts(args.data, limit=args.texts)
    examples = list(source)
    plan, _, _ = prepare(network, source, ScanOptions(), threads=1)
    encoded = network_processor(network).prepare(examples, plan.max_length)
    tokens = sum(e.sizes[0] for e in encoded)
    print(f"{network.depth} x {network.width}, {len(examples)} texts, {tokens} tokens, one thread")

    def median(action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
        action()
        times = []
        for _ in range(args.repeats):
            began = clock()
            action()
            times.append(clock() - began)
        return statistics.median(times)

    def forward() -> None:
        with torch.inference_mode():
            for group in make_groups(encoded, plan.batch_tokens):
                batch = make_batch(network, group)
                network.forward(batch.inputs)

    def ignore(prompts: int, tokens: int) -> None:
        pass

    seconds = {
        "reading and hashing texts": median(lambda: [example.key for example in source]),
        "one view": median(lambda: [make_view(e.text, 0, e.id, 1, 0.3) for e in examples]),
        "tokens": median(lambda: network_processor(network).prepare(examples, plan.max_length)),
        "forward": median(forward),
        "scan_shard, all one-view metrics": median(lambda: scan_shard(network, plan, {}, examples, ignore)),
    }
    for name, took in seconds.items():
        print(f"{name:34} {1e6 * took / tokens:9.2f} us a token")
    state, _ = scan_shard(network, plan, {}, examples, ignore)
    data = state.dump()
    with tempfile.TemporaryDirectory() as place:
        folder = open_folder(Path(place))
        merged = ScanState.parse(data)
        costs = {
            "dump": median(state.dump),
            "write, with fsync": median(lambda: folder.write("state", data), time.perf_counter),
            "read": median(lambda: folder.read("state"), time.perf_counter),
            "parse": median(lambda: ScanState.parse(data)),
            "merge": median(lambda: merged.merge(ScanState.parse(data))),
        }
    for name, took in costs.items():
        print(f"state of {len(data) / 1e6:.1f} MB, {name:20} {1e3 * took:9.2f} ms, {len(data) / took / 1e9:.2f} GB/s")
    wide = torch.randn(network.width, network.width, dtype=torch.float64)
    speed = 2 * network.width**3 / median(lambda: wide.mT @ wide)
    print(f"fold of {network.width} rows: {speed / 1e9:.1f} GFLOP/s in float64")
    count = 20_000
    stream = Source("numbers", lambda: ((None, f"text number {i}") for i in range(count)))
    took = median(lambda: [example.key for example in stream])
    print(f"the driver names {count / took:,.0f} texts a second")


if __name__ == "__main__":
    main()

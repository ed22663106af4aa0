"""What goes through the driver while states are merged: bytes, seconds and the hash of the result, for any workers.

    python benchmarks/merging.py [--width 4096] [--shards 24] [--workers 1 3 8] [--out merging.csv]

A shard's state is one sum of D x D numbers (8 D^2 bytes), made up from the shard's number: computing it costs nothing,
so that merging is all there is to see. The cluster is real: two nodes on loopback, with as many logical CPUs as there
are workers. The local engine merges the same shards first; every hash must be its own.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import ray
import torch
from ray.cluster_utils import Cluster as Nodes

import layerwise
from layerwise.core.files import DiskFolder, open_folder
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.local import LocalEngine
from layerwise.engines.ray import open_ray
from layerwise.engines.ray_cluster import RAY_ENVIRONMENT
from layerwise.metrics.accumulators.second_moment import SecondMoment
from layerwise.verbs.scan.state import Facts, ScanState


@dataclass(frozen=True)
class Item:
    id: str

    @property
    def digest(self) -> int:
        return int(self.id)


@dataclass(frozen=True)
class MadeUpShard:
    """The shard function: a state of one sum."""

    width: int

    def __call__(self, model: Any, number: int, items: Any, report: Any) -> Any:
        generator = torch.Generator().manual_seed(number)
        moment = SecondMoment(self.width, count=100, folds=1)
        moment.mean = torch.randn(self.width, generator=generator, dtype=torch.float64)
        moment.scatter = torch.randn(self.width, self.width, generator=generator, dtype=torch.float64)
        report(len(items), 0)
        return ScanState({}, {"sum": moment}, Facts(prompts=1, digests=int(items[0].id))), {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--shards", type=int, default=24)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 3, 8])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    traffic = count_traffic()
    shards = [[Item(str(number))] for number in range(args.shards)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:

        def measure(name: str, engine: Any) -> None:
            traffic.clear()
            began = time.monotonic()
            checkpoint = Checkpoint(open_folder(f"{folder}/{name}"), ScanState.parse, 30.0)
            state = engine.run_shards(shards, MadeUpShard(args.width), checkpoint)
            seconds, data = time.monotonic() - began, state.dump()
            megabytes = {
                f"{way} by this process, MB": round(sum(traffic.get(way, [])) / 1e6) for way in ("read", "written")
            }
            found = {"engine": name, "shards": args.shards, "state, MB": round(len(data) / 1e6), **megabytes}
            rows.append(found | {"seconds": round(seconds, 1), "hash": hashlib.sha256(data).hexdigest()[:16]})
            print(rows[-1], flush=True)

        measure("local", LocalEngine(None, "none"))
        os.environ |= RAY_ENVIRONMENT
        for workers in args.workers:
            nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": workers - workers // 2})
            nodes.add_node(num_cpus=max(1, workers // 2))
            ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            with open_ray(layerwise.Cluster(workers=workers), lambda: None, lambda model: "none") as engine:
                measure(f"{workers} workers", engine)
            ray.shutdown()
            nodes.shutdown()
    assert len({row["hash"] for row in rows}) == 1, "the bits differ"
    if args.out:
        pd.DataFrame(rows).to_csv(args.out, index=False)


def count_traffic() -> dict[str, list[int]]:
    """Counts the bytes that this process reads and writes in run folders."""
    sizes: dict[str, list[int]] = {}
    read, write = DiskFolder.read, DiskFolder.write

    def counted_read(folder: DiskFolder, name: str) -> bytes | None:
        data = read(folder, name)
        sizes.setdefault("read", []).append(len(data or b""))
        return data

    def counted_write(folder: DiskFolder, name: str, data: bytes) -> None:
        sizes.setdefault("written", []).append(len(data))
        write(folder, name, data)

    DiskFolder.read, DiskFolder.write = counted_read, counted_write  # type: ignore[method-assign]
    return sizes


if __name__ == "__main__":
    main()

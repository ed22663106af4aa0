"""What scan costs beside the bare forward pass: same batches, interleaved, repeated; medians of the ratio.

    python benchmarks/scan_cost.py MODEL [--lengths 64 128 256] [--batch-tokens 4096] [--repeats 5] [--metrics fast]
"""

import argparse
import statistics
import time

import torch

from layerwise.inputs.source import hash_id
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.batches import make_batch
from layerwise.passes.encode import Encoded
from layerwise.passes.tapped_pass import run_batch
from layerwise.sweep.plan import ScanPlan, choose_metrics
from layerwise.sweep.state import ScanState
from layerwise.sweep.worker import PromptValues, ReadingConsumer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--metrics", default="fast")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    network = load_network(ModelSpec(args.model))
    name = network.name.rpartition("/")[2]
    print(f"{name}: {network.depth} x {network.width}, {args.threads} threads, metrics {args.metrics}")
    for length in args.lengths:
        examples = [
            Encoded(str(i), hash_id(str(i)), (tuple(torch.randint(5, len(network.tokenizer) - 5, (length,)).tolist()),))
            for i in range(max(1, args.batch_tokens // length))
        ]
        batch = make_batch(network, examples)
        layers, has_norm = tuple(range(network.depth + 1)), network.anatomy.final_norm is not None
        plan = ScanPlan(choose_metrics(args.metrics), layers, network.depth, has_norm)
        bare, scanned = [], []
        for repeat in range(args.repeats + 1):
            state = ScanState({})
            consumer = ReadingConsumer(network, plan, state, PromptValues(), lambda prompts, tokens: None)
            start = time.perf_counter()
            with torch.inference_mode():
                network.forward(batch.ids.flatten(0, 1), batch.real.flatten(0, 1))
            middle = time.perf_counter()
            run_batch(network, batch, plan.layers, consumer)
            end = time.perf_counter()
            if repeat:  # the first round warms up
                bare.append(middle - start)
                scanned.append(end - middle)
        ratios = sorted(s / b for s, b in zip(scanned, bare, strict=True))
        print(
            f"T={length:4d} B={len(examples):3d}: forward {statistics.median(bare):.3f} s, "
            f"scan {statistics.median(scanned):.3f} s, "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()

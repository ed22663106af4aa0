"""What scan costs beside the bare forward pass: same batches, interleaved, repeated; medians of the ratio.

    python benchmarks/scan_cost.py MODEL [--lengths 64 128 256] [--batch-tokens 4096] [--repeats 5] [--metrics fast]
    python benchmarks/scan_cost.py MODEL --threads 1 --against OTHER/src      # another version of layerwise, in turns

Each version runs in a process of its own and they take turns. With one thread, CPU times are taken, which other
programs on the machine hardly change.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parents[1] / "src"


def rounds(model: str, metrics: str, batch_tokens: int, threads: int) -> Callable[[int], tuple[float, float]]:
    """A function from a length to the seconds of one bare forward pass and of one scan of the same batch."""
    import torch

    from layerwise.inputs.processor import Prepared
    from layerwise.inputs.source import hash_id
    from layerwise.models.load import ModelSpec, load_network
    from layerwise.passes.batches import make_batch
    from layerwise.passes.tapped_pass import run_batch
    from layerwise.sweep.plan import ScanPlan, choose_metrics
    from layerwise.sweep.state import ScanState
    from layerwise.sweep.worker import PromptValues, ReadingConsumer

    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    network = load_network(ModelSpec(model))
    layers, has_norm = tuple(range(network.depth + 1)), network.structure.final_norm is not None
    plan = ScanPlan(choose_metrics(metrics), layers, network.depth, has_norm)

    def measure(length: int) -> tuple[float, float]:
        ids = torch.Generator().manual_seed(length)
        some = (max(1, batch_tokens // length), length)
        prompts = torch.randint(5, len(network.tokenizer) - 5, some, generator=ids).tolist()
        made = [Prepared(str(i), hash_id(str(i)), 0, (tuple(p),), (length,)) for i, p in enumerate(prompts)]
        batch = make_batch(network, made)
        consumer = ReadingConsumer(network, plan, ScanState({}), PromptValues(), lambda prompts, tokens: None)
        start = clock()
        with torch.inference_mode():
            network.forward(batch.inputs)
        middle = clock()
        run_batch(network, batch, plan.layers, consumer)
        return middle - start, clock() - middle

    return measure


def answer(measure: Callable[[int], tuple[float, float]]) -> None:
    """In a process of its own: one line in, the length; one line out, both times."""
    for line in sys.stdin:
        print(json.dumps(measure(int(line))), flush=True)


def started(source: Path) -> subprocess.Popen[str]:
    """This script with the same arguments on another version of layerwise, waiting for lengths."""
    command = [sys.executable, __file__, *sys.argv[1:], "--answer"]
    env = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str], length: int) -> tuple[float, float]:
    assert process.stdin and process.stdout
    print(length, file=process.stdin, flush=True)
    bare, scanned = json.loads(process.stdout.readline())
    return bare, scanned


def in_turns(
    processes: dict[str, subprocess.Popen[str]], length: int, repeats: int
) -> Iterator[tuple[str, float, float]]:
    for repeat in range(repeats + 1):
        for name, process in processes.items():
            bare, scanned = ask(process, length)
            if repeat:  # the first round warms up
                yield name, bare, scanned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--metrics", default="fast")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--against", type=Path, help="src folder of another version, measured in turns")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer:
        return answer(rounds(args.model, args.metrics, args.batch_tokens, args.threads))
    sources = {"this": HERE} | ({"other": args.against} if args.against else {})
    processes = {name: started(source) for name, source in sources.items()}
    print(f"{Path(args.model).name}: {args.threads} threads, metrics {args.metrics}")
    for length in args.lengths:
        times = list(in_turns(processes, length, args.repeats))
        for name in processes:
            bare, scanned = zip(*(t[1:] for t in times if t[0] == name), strict=True)
            ratios = sorted(s / b for s, b in zip(scanned, bare, strict=True))
            print(
                f"T={length:4d} {name:5}: forward {statistics.median(bare):.3f} s, "
                f"scan {statistics.median(scanned):.3f} s, "
                f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                flush=True,
            )
    for process in processes.values():
        assert process.stdin
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()

"""What a scan costs beside the forward pass alone, part by part, and beside two other ways to compute the same numbers.

    python -m benchmarks.overhead MODELS [--models NAME ...] [--dtypes float32 bfloat16] [--lengths 64 128 256 512 1024]
        [--blocks 24] [--batch-tokens 1024] [--rounds 9] [--threads 1] [--views] [--peers] [--device cpu]
        [--entropy exact] [--out overhead.csv]

MODELS is a folder with models by name. `neox-70m` and `neox-410m` need none: random weights in the shapes of Pythia,
with at most `--blocks` blocks, since all blocks cost the same.
In each round every way runs once on the same batch, one after the other, so that whatever else the machine does falls
on all of them; a ratio is taken within a round. Of the ratios the median is given, with the range of ranks that holds
the true median with at least 95 %. Beside it stands the ratio of the shortest times, which other programs disturb
least. CPU time counts all threads of the process.

- forward: the model alone, without a language-model head.
- taps: a pass whose consumer does nothing.
- scan: all metrics that need no views, at every layer.
- views: all metrics, original and 16 views, against as many forward passes (`--views`).
- naive: `output_hidden_states=True`, then NumPy prompt by prompt (`--peers`).
- reference: the same, by the formulas of the paper's code: float64, curvature token by token (`--peers`).

Parts of a scan are timed in rounds of their own, by clocks around the functions that do the work. Megabytes are the
most that tensors take at once beside the weights, in a pass of its own. `predicted` is the ratio by the cost model in
README.md, with the speed of matrix products and of eigenvalues as measured here. Rows are added to the table.

On a GPU: `python -m benchmarks.overhead MODELS --device cuda --entropy products --batch-tokens 8192 --out gpu.csv`.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any
from unittest.mock import patch

SHAPES = {"neox-70m": (6, 512, 8), "neox-410m": (24, 1024, 16)}  # blocks, width, heads
VOCABULARY, LONGEST = 50_304, 2048
MODELS = ("smollm2-135m", "all-minilm-l6-v2", *SHAPES)
LENGTHS = (64, 128, 256, 512, 1024)
VIEWS, VIEW_LENGTH = 16, 64
KEYS = ["run", "model", "blocks", "dtype", "device", "threads", "tokens", "prompts", "way"]  # of a row of the table

PARTS = {  # the functions that do most of the work of a scan, where they are looked up
    "pooling": "layerwise.verbs.scan.worker.pool",
    "gram": "layerwise.metrics.ops.spectrum.smaller_gram",
    "eigenvalues": "layerwise.metrics.ops.spectrum.symmetric_eigenvalues",
    "curvature": "layerwise.metrics.curvature.turning_angles",
    "accumulators": "layerwise.verbs.scan.worker.ReadingConsumer.keep",
    "all readings": "layerwise.verbs.scan.worker.ReadingConsumer.on_layer",
}


@dataclass(frozen=True)
class Seconds:
    """Of one call, by both clocks."""

    cpu: float
    wall: float


def timed(action: Callable[[], object], device: str) -> Seconds:
    import torch

    def finished() -> Seconds:
        if device != "cpu":
            torch.accelerator.synchronize()
        return Seconds(time.process_time(), time.perf_counter())

    before = finished()
    action()
    after = finished()
    return Seconds(after.cpu - before.cpu, after.wall - before.wall)


def random_network(name: str, dtype: str, device: str, most_blocks: int = 24) -> Any:
    """A GPT-NeoX in the shape of a Pythia model, with random weights."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import GPTNeoXConfig, GPTNeoXModel, PreTrainedTokenizerFast

    from layerwise.models.load import network_from_object

    blocks, width, heads = SHAPES[name]
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY, num_hidden_layers=min(blocks, most_blocks), hidden_size=width, num_attention_heads=heads,
        intermediate_size=4 * width, max_position_embeddings=LONGEST,
    )  # fmt: skip
    words = {"<pad>": 0} | {f"w{i}": i for i in range(1, 10)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), pad_token="<pad>", unk_token="<pad>"
    )
    module = GPTNeoXModel(config).to(getattr(torch, dtype)).to(device).eval()
    return network_from_object((module, tokenizer))


def network_of(name: str, models: Path, dtype: str, device: str, most_blocks: int = 24) -> Any:
    from layerwise.models.load import ModelSpec, load_network

    if name in SHAPES:
        return random_network(name, dtype, device, most_blocks)
    return load_network(ModelSpec(str(models / name), dtype=dtype, device=device))


def batch_of(network: Any, prompts: int, length: int, views: int = 0) -> Any:
    """Random tokens, all prompts of one length."""
    import torch

    from layerwise.inputs.processor import Prepared
    from layerwise.inputs.source import hash_id
    from layerwise.passes.batches import make_batch

    generator = torch.Generator().manual_seed(length)
    shape = (prompts, 1 + views, length)
    ids = torch.randint(5, network.module.config.vocab_size - 5, shape, generator=generator).tolist()
    sizes = (length,) * (1 + views)
    prepared = [Prepared(str(i), hash_id(str(i)), 0, tuple(map(tuple, row)), sizes) for i, row in enumerate(ids)]
    return make_batch(network, prepared)


class Nothing:
    """A consumer that reads nothing."""

    def on_layer(self, *args: object, **options: object) -> None: ...

    def keep(self, batch: object) -> None: ...

    def finish(self, batch: object) -> None: ...

    def discard(self) -> None: ...


def consumer_of(network: Any, metrics: str = "fast", entropy: Any = "exact") -> Any:
    """What a scan of all layers does with the hidden states of a batch."""
    from layerwise.verbs.scan.plan import ScanPlan, choose_metrics
    from layerwise.verbs.scan.state import ScanState
    from layerwise.verbs.scan.worker import PromptValues, ReadingConsumer

    layers, has_norm = tuple(range(network.depth + 1)), network.structure.final_norm is not None
    plan = ScanPlan(choose_metrics(metrics), layers, network.depth, has_norm, entropy=entropy)
    return ReadingConsumer(network, plan, ScanState({}), PromptValues(), lambda prompts, tokens: None)


def ways(network: Any, batch: Any, metrics: str, entropy: Any, peers: bool) -> dict[str, Callable[[], object]]:
    """What is timed, by name; `forward` first."""
    import torch

    from benchmarks import peers as other
    from layerwise.passes.tapped_pass import run_batch

    layers = tuple(range(network.depth + 1))

    def forward() -> None:
        with torch.no_grad():
            network.forward(batch.inputs)

    def scan() -> None:
        run_batch(network, batch, layers, consumer_of(network, metrics, entropy))

    def taps() -> None:
        run_batch(network, batch, layers, Nothing())

    mine: dict[str, Callable[[], object]] = {"forward": forward, "taps": taps, "scan": scan}
    if not peers:
        return mine
    return mine | {
        "naive": lambda: other.naive(network.module, batch.inputs),
        "reference": lambda: other.reference(network.module, batch.inputs),
    }


def in_turns(actions: dict[str, Callable[[], object]], rounds: int, device: str) -> Iterator[dict[str, Seconds]]:
    for number in range(rounds + 1):
        times = {name: timed(action, device) for name, action in actions.items()}
        if number:  # the first round warms up
            yield times


@contextmanager
def clocks() -> Iterator[dict[str, float]]:
    """CPU seconds inside each of the parts, while this is open."""
    from pkgutil import resolve_name

    spent = dict.fromkeys(PARTS, 0.0)

    def around(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed_function(*args: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **options)
            finally:
                spent[part] += time.process_time() - began

        return timed_function

    with ExitStack() as stack:
        for part, name in PARTS.items():
            stack.enter_context(patch(name, around(part, resolve_name(name))))
        yield spent


def parts_of(scan: Callable[[], object], forward: Callable[[], object], rounds: int) -> dict[str, float]:
    """Medians of each part's share of the forward pass; what no clock covers is `other readings`."""
    from statistics import median

    shares: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(rounds):
        bare = timed(forward, "cpu").cpu
        with clocks() as spent:
            scan()
        for part, seconds in spent.items():
            shares[part].append(seconds / bare)
    found = {part: median(values) for part, values in shares.items()}
    inner = sum(found[part] for part in ("pooling", "gram", "eigenvalues", "curvature"))
    found["other readings"] = found.pop("all readings") - inner
    return found


def median_and_range(values: list[float]) -> tuple[float, float, float]:
    """The median, and the narrowest symmetric ranks that hold the true one with at least 95 %."""
    ordered, n = sorted(values), len(values)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    outside = 0
    while outside + 1 < n / 2 and 2 * sum(comb(n, k) for k in range(outside + 1 + 1)) / 2**n <= 0.05:
        outside += 1
    return middle, ordered[outside], ordered[n - 1 - outside]


def measured(network: Any, name: str, dtype: str, length: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    prompts = max(1, args.batch_tokens // length)
    actions = ways(network, batch_of(network, prompts, length), "fast", args.entropy, args.peers)
    parts = parts_of(actions["scan"], actions["forward"], 3) if args.device == "cpu" and args.threads == 1 else {}
    yield from rows_of(actions, name, network, dtype, length, prompts, args, parts)


def measured_views(network: Any, name: str, dtype: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    prompts = max(1, args.batch_tokens // (VIEW_LENGTH * (1 + VIEWS)))
    actions = ways(network, batch_of(network, prompts, VIEW_LENGTH, VIEWS), "all", args.entropy, False)
    actions["views"] = actions.pop("scan")
    yield from rows_of(actions, name, network, dtype, VIEW_LENGTH, prompts, args, {})


def peak(action: Callable[[], object]) -> int:
    """The most bytes of tensors that are alive at once while it runs, weights not counted."""
    from benchmarks.memory import LiveBytes

    with LiveBytes() as counted:
        action()
    return counted.peak


def predicted_ratio(network: Any, prompts: int, length: int, args: argparse.Namespace, forward: float) -> float:
    """By the cost model in README.md, with speeds of this device: the forward pass, and prompt entropy."""
    import torch

    from layerwise.metrics.ops.spectrum import symmetric_eigenvalues

    def seconds(action: Callable[[], object]) -> float:
        return min(timed(action, args.device).wall for _ in range(5))

    size, width = min(length, network.width), max(length, network.width)
    rows, square = torch.randn(size, width, device=args.device), torch.randn(1024, 1024, device=args.device)
    per_operation = seconds(lambda: square @ square) / (2 * 1024**3)
    if args.entropy == "products":
        spectrum = 30 * size**3 * per_operation
    else:
        gram = (rows @ rows.mT)[None]
        spectrum = seconds(lambda: symmetric_eigenvalues(gram))
    return 1 + prompts * (network.depth + 1) * (spectrum + 2 * size**2 * width * per_operation) / forward


def rows_of(
    actions: dict[str, Callable[[], object]],
    name: str,
    network: Any,
    dtype: str,
    length: int,
    prompts: int,
    args: argparse.Namespace,
    parts: dict[str, float],
) -> Iterator[dict[str, Any]]:
    rounds = list(in_turns(actions, args.rounds, args.device))
    run = "views" if "views" in actions else "peers" if args.peers else "lengths"
    forward_megabytes = peak(actions["forward"]) / 1e6
    for way in list(actions)[1:]:
        row: dict[str, Any] = {
            "run": run, "model": name, "blocks": network.depth, "width": network.width, "dtype": dtype,
            "device": args.device, "threads": args.threads, "tokens": length, "prompts": prompts,
            "way": way, "rounds": len(rounds),
        }  # fmt: skip
        for clock in ("cpu", "wall"):
            ratios = [getattr(times[way], clock) / getattr(times["forward"], clock) for times in rounds]
            row |= dict(zip((clock, f"{clock}_low", f"{clock}_high"), median_and_range(ratios), strict=True))
            shortest = [min(getattr(times[name], clock) for times in rounds) for name in (way, "forward")]
            row[f"{clock}_shortest"] = shortest[0] / shortest[1]
        row["forward_seconds"] = median_and_range([times["forward"].wall for times in rounds])[0]
        row["megabytes"], row["forward_megabytes"] = peak(actions[way]) / 1e6, forward_megabytes
        if way == "scan":
            row["predicted"] = predicted_ratio(network, prompts, length, args, row["forward_seconds"])
        yield row | (parts if way == "scan" else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="MODELS")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--lengths", nargs="*", type=int, default=LENGTHS)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--views", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entropy", default="exact")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    args = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # read when NumPy is imported
        os.environ[variable] = str(args.threads)
    import pandas as pd
    import torch

    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    for name in args.models:
        for dtype in args.dtypes:
            network = network_of(name, args.folder, dtype, args.device, args.blocks)
            for length in [n for n in args.lengths if n <= (network.module.config.max_position_embeddings or n)]:
                rows += printed(measured(network, name, dtype, length, args))
            if args.views:
                rows += printed(measured_views(network, name, dtype, args))
            write_rows(pd.DataFrame(rows).round(4), args.out)


def write_rows(rows: Any, out: Path) -> None:
    """Adds rows to a table, in place of those of the same cell."""
    import pandas as pd

    if out.is_file():
        rows = pd.concat([pd.read_csv(out), rows], ignore_index=True).drop_duplicates(KEYS, keep="last")
    rows.to_csv(out, index=False)


def printed(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        print(
            f"{row['model']:16} {row['dtype']:8} T={row['tokens']:<4} {row['way']:9} CPU {row['cpu']:.3f} "
            f"({row['cpu_low']:.3f} to {row['cpu_high']:.3f}), of the shortest {row['cpu_shortest']:.3f}; "
            f"wall {row['wall']:.3f}",
            flush=True,
        )
        yield row


if __name__ == "__main__":
    main()

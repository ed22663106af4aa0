"""Prompt entropy by matrix products: its error on hidden states of real decoders, and its cost.

    python benchmarks/entropy_products.py MODEL [MODEL ...] --texts TEXTS [--lengths 128 512] [--prompts 2]

Writes entropy_products.csv next to this file: per model, row treatment, length and layer, the largest error over the
prompts against float64 eigenvalues of the same hidden states, beside that of float32 eigenvalues. Then prints CPU times
of both ways for matrices of several sizes, interleaved, on one thread; and the arithmetic for a large model.
"""

import argparse
import statistics
import time
from pathlib import Path

import pandas as pd
import torch

import layerwise
from layerwise.metrics.ops.entropy_products import ITERATIONS, LARGEST, SPARE, STEPS, entropy_by_products
from layerwise.metrics.ops.spectrum import eigenvalues, renyi_entropy
from layerwise.metrics.prompt_entropy import METRIC, prompt_entropy

PRODUCTS = 2 + (STEPS - 1) + (STEPS - 2)  # of n x n matrices: for the norm, and for the polynomial
SIZES, ROUNDS = (128, 256, 512), 5


def hidden_states(model: str, texts: list[str], length: int, prompts: int) -> torch.Tensor:
    """The output of transformers itself for whole windows of text: (layers, prompts, length, width)."""
    from transformers import AutoModel, AutoTokenizer

    ids: list[int] = AutoTokenizer.from_pretrained(model)("\n".join(texts))["input_ids"]
    network = AutoModel.from_pretrained(model, dtype=torch.float32).eval()
    batch = torch.tensor(ids[: length * prompts]).view(prompts, length)
    with torch.inference_mode():
        return torch.stack(network(input_ids=batch, output_hidden_states=True).hidden_states)


def errors(model: str, texts: list[str], length: int, prompts: int) -> list[dict[str, object]]:
    rows = []
    for layer, states in enumerate(hidden_states(model, texts, length, prompts)):
        mask = torch.ones(states.shape[:2], dtype=torch.bool)
        for treatment in METRIC.rows:
            true = prompt_entropy(states.double(), mask, rows=treatment)
            found = {way: prompt_entropy(states, mask, rows=treatment, entropy=way) for way in ("products", "exact")}
            worst = {f"error_{way}": float((value - true).abs().max()) for way, value in found.items()}
            place = {"model": Path(model).name, "rows": treatment, "tokens": length, "layer": layer}
            rows.append(place | {"entropy": round(float(true.mean()), 4)} | {k: f"{v:.1e}" for k, v in worst.items()})
    return rows


def seconds(size: int) -> tuple[float, float]:
    """Median CPU seconds per matrix, by eigenvalues and by products, in turns."""
    rows = torch.randn(4, size, 2 * size, generator=torch.Generator().manual_seed(size))
    gram = rows @ rows.mT
    ways = (lambda: renyi_entropy(eigenvalues(gram, 2 * size)), lambda: entropy_by_products(gram))
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS + 1):
        for way, times in zip(ways, taken, strict=True):
            began = time.process_time()
            way()
            times.append((time.process_time() - began) / len(gram))
    return statistics.median(taken[0][1:]), statistics.median(taken[1][1:])


def flops(tokens: int, width: int) -> float:
    """Of one layer and prompt: Gram matrix, subspace iteration and products."""
    return 2 * tokens**2 * (width + (ITERATIONS + 2) * (LARGEST + SPARE)) + PRODUCTS * 2 * tokens**3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--prompts", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    texts = [str(example.payload) for example in layerwise.texts(args.texts, only="wikitext", limit=200)]
    table = pd.DataFrame(
        [row for model in args.models for length in args.lengths for row in errors(model, texts, length, args.prompts)]
    )
    table.to_csv(Path(__file__).with_suffix(".csv"), index=False)
    worst = table.astype({"error_products": float, "error_exact": float})
    print(worst.groupby(["model", "tokens", "rows"])[["error_products", "error_exact"]].max().to_string())
    for size in SIZES:
        exact, products = seconds(size)
        print(f"{size} x {size}: eigenvalues {1e3 * exact:.1f} ms, products {1e3 * products:.1f} ms of CPU time")
    layers, width, parameters, tokens = 33, 4096, 6.7e9, 512
    extra, forward = layers * flops(tokens, width), 2 * parameters * tokens
    print(f"7B, {tokens} tokens: {extra / 1e9:.0f} GFLOP for entropy, {forward / 1e9:.0f} for the forward pass: "
          f"{100 * extra / forward:.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()

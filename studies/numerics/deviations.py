"""How far prompt entropy is from float64 on the same hidden states, layer by layer, computed in three ways.

    python studies/numerics/deviations.py MODELS WIKITEXT2_TEST

MODELS is the folder of prepared models. Writes deviations.csv: the exact mean over prompts, and the largest deviation
of any prompt (value / exact - 1, in percent)
- of layerwise itself (`float32`),
- with eigenvalues below max(T, D) * eps * largest set to zero (`with_cut`: what layerwise did before),
- with the Gram matrix rounded to bfloat16 (`bfloat16_gram`; against float64 on the states rounded to bfloat16).
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import layerwise
from layerwise import functional as F
from layerwise.metrics.ops.rows import treat_rows
from layerwise.metrics.ops.spectrum import renyi_entropy, smaller_gram
from layerwise.models.load import ModelSpec, load_network
from layerwise.passes.batches import Batch, make_batch, network_processor
from layerwise.passes.tapped_pass import run_batch

LENGTHS, PROMPTS = (37, 128, 256), 6


def exact(z: Tensor, rows: str) -> Tensor:
    return renyi_entropy(torch.linalg.eigvalsh(smaller_gram(treat_rows(z.double(), rows))).clamp(min=0))


def with_cut(z: Tensor, rows: str) -> Tensor:
    values = torch.linalg.eigvalsh(smaller_gram(treat_rows(z, rows)))
    cut = max(z.shape[-2:]) * torch.finfo(z.dtype).eps * values[..., -1:]
    return renyi_entropy(torch.where(values > cut, values, 0.0))


def bfloat16_gram(z: Tensor, rows: str) -> Tensor:
    gram = smaller_gram(treat_rows(z.bfloat16(), rows).bfloat16()).float()
    return renyi_entropy(torch.linalg.eigvalsh(gram).clamp(min=0))


class Compare:
    """A consumer that compares the three ways at every layer."""

    def __init__(self, words: dict[str, object]) -> None:
        self.words, self.found = words, list[dict[str, object]]()

    def on_layer(self, number: int, hidden: Tensor, batch: Batch, point: str = "") -> None:
        z = hidden[:, 0]
        for rows in ("raw", "centered_unit"):
            right, rounded = exact(z, rows), exact(z.bfloat16(), rows)
            ways = {
                "float32": (F.matrix_entropy(z, rows=rows).double(), right),
                "with_cut": (with_cut(z, rows).double(), right),
                "bfloat16_gram": (bfloat16_gram(z, rows).double(), rounded),
            }
            row = self.words | {"rows": rows, "layer": number, "exact": round(float(right.mean()), 4)}
            for name, (value, reference) in ways.items():
                relative = 100 * (value / reference - 1)
                row[name] = float(f"{relative[relative.abs().argmax()]:.3g}")
            self.found.append(row)

    def commit(self, batch: Batch) -> None:
        pass

    def discard(self) -> None:
        pass


def main(models: Path, data: Path) -> None:
    tables = []
    for model in ("smollm2-135m", "gemma3-270m"):
        network = load_network(ModelSpec(str(models / model)))
        kept = {"only": "wikitext", "min_tokens": max(LENGTHS), "tokenizer": network.tokenizer, "limit": PROMPTS}
        texts = list(layerwise.texts(data, **kept))
        for length in LENGTHS:
            compare = Compare({"model": model, "tokens": length})
            batch = make_batch(network, network_processor(network).prepare(texts, length))
            run_batch(network, batch, range(network.depth + 1), compare)
            tables.append(pd.DataFrame(compare.found))
    table = pd.concat(tables)
    table.to_csv(Path(__file__).with_name("deviations.csv"), index=False)
    worst = ["float32", "with_cut", "bfloat16_gram"]
    print(table.groupby(["model", "tokens", "rows"])[worst].agg(lambda column: column.iloc[column.abs().argmax()]))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

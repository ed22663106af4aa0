"""How much faster does a model with fewer blocks answer?

    python studies/classify/serving.py SHARED_DATA MODEL LAYER [LAYER ...] [--data trec6 ag_news] [--texts 64]

The blocks of a layer, in sentence-transformers with one thread, against the whole model on the same test texts, in
batches of 16. Each round times all in turn; a row of serving.csv has the median ratio of the rounds, the lowest and the
highest. The head is left out: it is one product per text.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from tasks import LABELS, examples
from torch import nn

TABLE = Path(__file__).parent / "serving.csv"
ROUNDS = 7


def cut(model: Any, layer: int) -> None:
    """Keeps the first blocks of a model whose list of blocks is called `layer` or `layers`."""
    body = model[0].auto_model
    parent = getattr(body, "encoder", body)
    name = "layer" if hasattr(parent, "layer") else "layers"
    setattr(parent, name, nn.ModuleList(list(getattr(parent, name))[:layer]))


def seconds(model: Any, texts: list[str]) -> float:
    begun = time.process_time()
    model.encode(texts, batch_size=16, show_progress_bar=False)
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_root", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("layers", type=int, nargs="+")
    parser.add_argument("--data", nargs="+", choices=list(LABELS), default=["trec6", "ag_news"])
    parser.add_argument("--texts", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    models = {None: SentenceTransformer(str(args.model), device="cpu")}
    for layer in args.layers:
        models[layer] = SentenceTransformer(str(args.model), device="cpu")
        cut(models[layer], layer)
    for name in args.data:
        texts = list(examples(args.data_root, name, 16, 0)[1].text[: args.texts])
        for model in models.values():
            seconds(model, texts[:16])  # the first call is slower
        rounds = [{layer: seconds(model, texts) for layer, model in models.items()} for _ in range(ROUNDS)]
        for layer in args.layers:
            ratios = np.array([one[layer] / one[None] for one in rounds])
            row = {
                "model": args.model.name, "data": name, "layer": layer, "texts": len(texts),
                "ratio": round(float(np.median(ratios)), 3), "low": round(ratios.min(), 3),
                "high": round(ratios.max(), 3),
                "whole_ms_per_text": round(1000 * float(np.median([one[None] for one in rounds])) / len(texts), 2),
            }  # fmt: skip
            table = pd.DataFrame([row])
            if TABLE.is_file():
                before = pd.read_csv(TABLE)
                same = (before.model == row["model"]) & (before.data == name) & (before.layer == layer)
                table = pd.concat([before[~same], table])
            table.sort_values(["model", "data", "layer"]).to_csv(TABLE, index=False)
            print(row, flush=True)


if __name__ == "__main__":
    main()

"""What transformers gives for `num_hidden_layers=k`, against layer k of the whole model: mean-pooled vectors.

    python studies/export/truncated.py MODELS studies/export

Writes truncated.csv: the largest difference of an entry over the largest entry of the true layer, and the mean cosine
of the two vectors of a text, for three depths of each model on 24 of the bundled demo texts.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoModel

import layerwise
from layerwise.inputs.text import demo_texts
from layerwise.models.opening import open_network

MODELS = ("smollm2-135m", "gemma3-270m", "stories15m", "all-minilm-l6-v2", "gte-small")
TEXTS = demo_texts()[:24]


def pooled(folder: Path, layer: int, tokenizer: object) -> np.ndarray:
    """The mean token of each text in the last hidden state of a model that transformers cut at that layer."""
    model = AutoModel.from_pretrained(folder, num_hidden_layers=layer, dtype=torch.float32).eval()
    rows = []
    for text in TEXTS:
        batch = tokenizer([text], return_tensors="pt", return_token_type_ids=False)  # type: ignore[operator]
        with torch.inference_mode():
            rows.append(model(**batch).last_hidden_state[0].mean(dim=0).numpy())
    return np.stack(rows)


def main(models: Path, out: Path) -> None:
    rows = []
    for name in MODELS:
        network = open_network(str(models / name))
        for share in (0.25, 0.5, 0.75):
            layer = max(1, round(share * network.depth))
            true = np.stack(layerwise.embed(network, TEXTS, layers=layer)[f"layer_{layer}"])
            cut = pooled(models / name, layer, network.tokenizer)
            cosine = (true * cut).sum(1) / np.linalg.norm(true, axis=1) / np.linalg.norm(cut, axis=1)
            gap = float(np.abs(true - cut).max() / np.abs(true).max())
            row = {"model": name, "layer": layer, "of": network.depth, "difference": gap, "cosine": cosine.mean()}
            rows.append(row)
            print(rows[-1], flush=True)
    pd.DataFrame(rows).round(6).to_csv(out / "truncated.csv", index=False)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

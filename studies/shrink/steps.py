"""Where does the CPU time of a training step go, and what do products in bfloat16 save?

    python studies/shrink/steps.py MODELS SHARED_DATA NAME:BLOCKS [NAME:BLOCKS ...]

The first BLOCKS blocks of a model read batches of 32 sentences of similar length on one thread, in three ways that take
turns: float32; `medium`, torch's rounding of the factors of float32 products; `bfloat16`, as `layerwise shrink` trains
on a CPU with AMX. steps.csv gets the median over rounds of the seconds per part, and the range of their sum.
"""

import argparse
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from kept import add_rows
from sentence_transformers import SentenceTransformer
from study import sentences

from layerwise.verbs.shrink.training import faster_products, imitation_loss

TABLE = Path(__file__).parent / "steps.csv"
WAYS = {"float32": ("highest", False), "medium": ("medium", False), "bfloat16": ("highest", True)}
PARTS = ("tokenize", "forward", "backward", "update")
BATCHES, BATCH, ROUNDS = 4, 32, 3


def seconds_of(
    way: str, model: Any, optimizer: Any, batches: list[list[str]], targets: list[torch.Tensor]
) -> list[float]:
    """The CPU seconds of each part, per step."""
    precision, rounded = WAYS[way]
    torch.set_float32_matmul_precision(precision)
    spent = [0.0] * len(PARTS)
    for texts, wanted in zip(batches, targets, strict=True):
        laps = [time.process_time()]
        features = model.preprocess(texts)
        laps.append(time.process_time())
        with faster_products(model.device, features["input_ids"].shape[1]) if rounded else nullcontext():
            found = model(features)["sentence_embedding"].float()
        loss = imitation_loss(found, wanted, unit=True)
        laps.append(time.process_time())
        optimizer.zero_grad()
        loss.backward()
        laps.append(time.process_time())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        laps.append(time.process_time())
        spent = [total + end - begin for total, begin, end in zip(spent, laps, laps[1:], strict=False)]
    return [total / len(batches) for total in spent]


def rows_of(name: str, blocks: int, models: Path, texts: list[str]) -> pd.DataFrame:
    """One row per way."""
    model = SentenceTransformer(str(models / name), device="cpu")
    encoder = model[0].auto_model.encoder
    encoder.layer = encoder.layer[:blocks]
    batches = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    with torch.no_grad():
        targets = [model(model.preprocess(batch))["sentence_embedding"].clone() for batch in batches]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    for way in WAYS:
        seconds_of(way, model, optimizer, batches[:1], targets[:1])
    found = pd.DataFrame(
        {"way": way, **dict(zip(PARTS, seconds_of(way, model, optimizer, batches, targets), strict=True))}
        for _ in range(ROUNDS) for way in WAYS
    )  # fmt: skip
    found["step"] = found[list(PARTS)].sum(axis=1)
    steps = found.groupby("way", sort=False)
    table = steps.median().assign(least=steps.step.min(), most=steps.step.max()).round(3).reset_index()
    table.insert(0, "blocks", blocks)
    table.insert(0, "model", name)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data"):
        parser.add_argument(name, type=Path)
    parser.add_argument("small", nargs="+")
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = sentences(args.data / "wikitext2" / "train.parquet", BATCHES * BATCH)
    for small in args.small:
        name, _, blocks = small.partition(":")
        rows = rows_of(name, int(blocks), args.models, sorted(chosen, key=len))
        add_rows(TABLE, rows, ["model", "blocks", "way"])
        print(rows.to_string(index=False), flush=True)


if __name__ == "__main__":
    main()

"""Makes the cheaper models of the protocol by `layerwise shrink`, as a user would.

    python studies/shrink/cheaper.py MODELS SHARED_DATA KEPT MODEL [--cell CELL ...] [--minutes 15] [--seed 0]

Three quarters of the blocks get a linear map, half of them are trained. Each is made of sentences of WikiText-2 alone,
and of the training texts of one domain as well, which are requests to a bank or an assistant. The folders are in
KEPT/cheaper; losses.py and search.py say what each loses. The time of a training is that of one core: begin one per
core, with OMP_NUM_THREADS=1 and `taskset`.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from originals import original
from study import sentences

import layerwise
from layerwise.models.opening import open_network
from layerwise.verbs.shrink.student import blocks_read
from layerwise.verbs.shrink.training import trains_in_bfloat16

SENTENCES = 12000
CELLS = ("linear", "linear-requests", "trained", "trained-requests")


def domain_texts(data: Path) -> list[str]:
    """The training texts of one domain, without labels."""
    tables = (pd.read_parquet(data / name / "train.parquet") for name in ("banking77", "massive_intent_en"))
    return sorted({str(text).strip() for table in tables for text in table.text})


def make(cell: str, source: Path, data: Path, kept: Path, minutes: float, seed: int) -> Path:
    """The folder of a cheaper model, made now if it is not there."""
    method, _, requests = cell.partition("-")
    trained = method == "trained"
    rounded = "-bfloat16" if trains_in_bfloat16(torch.device("cpu")) else ""
    name = f"{source.name}-{cell}" + (f"{rounded}-{minutes:g}min-seed{seed}" if trained else "")
    folder = kept / "cheaper" / name
    if not folder.exists():
        depth = blocks_read(open_network(str(source)))
        layerwise.shrink(
            str(source), sentences(data / "wikitext2" / "train.parquet", SENTENCES), folder,
            queries=domain_texts(data) if requests else None, method="distill" if trained else "linear",
            blocks=depth // 2 if trained else 3 * depth // 4, minutes=minutes if trained else None, seed=seed,
            work=kept / "cheaper" / f"{source.name}.work", progress=True,
        )  # fmt: skip
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("model")
    parser.add_argument("--cell", choices=CELLS, nargs="+", default=list(CELLS))
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source = original(args.model, args.models, args.kept)
    for cell in args.cell:
        print(make(cell, source, args.data, args.kept, args.minutes, args.seed), flush=True)


if __name__ == "__main__":
    main()

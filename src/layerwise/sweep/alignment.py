"""Which layers of two runs arrange the same texts alike: linear CKA of the rows that both runs kept."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerwise.engines.shards import state_files
from layerwise.errors import RunError
from layerwise.files import open_folder
from layerwise.metrics.linear_cka import cka_matrix

TEXTS_AT_MOST = 1024  # N x N numbers are held for each layer; those with the smallest hashed ids are a fair sample


class NotComparable(RunError):
    """Two runs that are whole, but kept no rows of texts that both saw."""


@dataclass(frozen=True)
class Alignment:
    """Linear CKA (L, M) between layers of a first and a second run, on n texts that both saw."""

    first_layers: tuple[int, ...]
    second_layers: tuple[int, ...]
    values: Tensor
    n: int
    tokens: str = "all"

    def at(self, first: int, second: int) -> float:
        return float(self.values[self.first_layers.index(first), self.second_layers.index(second)])


def alignment(first: str | Path, second: str | Path, *, tokens: str = "all", pooling: str = "mean") -> Alignment:
    """CKA of every layer of one run with every layer of another, from the sample of pooled rows in their folders."""
    one, two = (row_samples(run, tokens, pooling) for run in (first, second))
    if not one or not two:
        bare = first if not one else second
        raise NotComparable(
            f"{bare} keeps no pooled rows with tokens {tokens} and pooling {pooling}; scan it into a folder, with a "
            "metric that has them, such as intrinsic_dimension"
        )
    both = [keys for keys, _ in (next(iter(one.values())), next(iter(two.values())))]
    shared = torch.tensor(sorted(set(both[0].tolist()) & set(both[1].tolist()))[:TEXTS_AT_MOST], dtype=torch.int64)
    if len(shared) < 3:
        raise NotComparable(f"{first} and {second} share {len(shared)} texts; CKA needs the same texts in both")
    rows = [[kept[torch.isin(keys, shared)] for keys, kept in sample.values()] for sample in (one, two)]
    return Alignment(tuple(one), tuple(two), cka_matrix(*rows), len(shared), tokens)


def row_samples(run: str | Path, tokens: str, pooling: str) -> dict[int, tuple[Tensor, Tensor]]:
    """Keys (n,), ascending, and pooled rows (n, D) by layer; no more of the run's state is read than these."""
    files = state_files(open_folder(run))
    if not files:
        return {}
    ending = f"|raw|{tokens}|{pooling}|row_sample"
    try:
        with safe_open(Path(run) / files[-1], "pt") as state:
            names = sorted(name.removesuffix("//kept") for name in state.keys() if name.endswith(f"{ending}//kept"))
            parts = {int(name.partition("|")[0]): [state.get_tensor(f"{name}//{part}") for part in ("keys", "kept")]
                     for name in names}  # fmt: skip
    except (SafetensorError, ValueError, OSError) as error:
        raise RunError(f"{files[-1]} in {run} is damaged ({error}); scan again into another folder") from None
    return {layer: (keys, kept[:, 0]) for layer, (keys, kept) in parts.items()}

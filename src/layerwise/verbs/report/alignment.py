"""Which layers of two runs are similar: linear CKA on examples that both runs sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import RunError
from layerwise.metrics.accumulators.row_sample import RowSample
from layerwise.metrics.linear_cka import cka_matrix
from layerwise.metrics.readings import row_sample
from layerwise.runs.folder import Run
from layerwise.runs.keys import CONTENT_DIGESTS, StateKey
from layerwise.verbs.scan.state import load_state

Samples = dict[str, RowSample]  # row samples in a run's state, by name
MAX_EXAMPLES = 1024  # each layer needs an N x N matrix; examples with the smallest hashed ids are a random sample


class NotComparableError(RunError):
    """Two complete runs without stored rows of common examples."""


@dataclass(frozen=True)
class Alignment:
    """Linear CKA (L, M) between the layers of two runs, on n common examples."""

    first_layers: tuple[int, ...]
    second_layers: tuple[int, ...]
    values: Tensor
    n: int
    tokens: str = "all"

    def at(self, first: int, second: int) -> float:
        return float(self.values[self.first_layers.index(first), self.second_layers.index(second)])

    def to_record(self) -> dict[str, Any]:
        """The same as plain data; None where CKA is not defined."""
        values = [[None if v != v else round(v, 4) for v in line] for line in self.values.tolist()]
        layers = {"first_layers": list(self.first_layers), "second_layers": list(self.second_layers)}
        return {**layers, "values": values, "n": self.n, "tokens": self.tokens}


def alignment(
    first: "Run | str | Path", second: "Run | str | Path", *, tokens: str = "all", pooling: str = "mean"
) -> Alignment:
    """CKA between all layers of two runs, from the row samples in their folders."""
    runs = [Run.open(run) for run in (first, second)]
    return align(runs, [load_samples(run) for run in runs], tokens, pooling)


def align(runs: Sequence[Run], states: Sequence[Samples], tokens: str, pooling: str = "mean") -> Alignment:
    """The same from states that are already loaded; raises NotComparable if they share too few examples."""
    first, second = (run.location for run in runs)
    first_samples, second_samples = (row_samples(state, tokens, pooling) for state in states)
    for run, sample in zip(runs, (first_samples, second_samples), strict=True):
        if not sample and (missing := run.missing_for_state):
            raise NotComparableError(f"{missing} is missing in {run.location}; scan again with --out")
        if not sample:
            raise NotComparableError(
                f"{run.location} has no stored rows with tokens {tokens} and pooling {pooling}; scan again with --out, "
                "and with a metric that stores rows, such as intrinsic_dimension"
            )
    contents = [content_digests(state) for state in states]
    common_keys = [key for key in contents[0] if key in contents[1]]
    sampled_keys = set.intersection(
        *(set(keys.tolist()) for sample in (first_samples, second_samples) for keys, _ in sample.values())
    )
    same_content = [key for key in common_keys if contents[0][key] == contents[1][key] and key in sampled_keys]
    shared = torch.tensor(sorted(same_content)[:MAX_EXAMPLES], dtype=torch.int64)
    if len(shared) < 3:
        differing = sum(contents[0][key] != contents[1][key] for key in common_keys)
        reason = f"; {differing} ids are in both, but with other content" if differing else ""
        raise NotComparableError(
            f"{first} and {second} share {len(shared)} examples{reason}; CKA needs the same in both"
        )
    rows = [
        [common_keys[torch.isin(keys, shared)] for keys, common_keys in sample.values()]
        for sample in (first_samples, second_samples)
    ]
    return Alignment(tuple(first_samples), tuple(second_samples), cka_matrix(*rows), len(shared), tokens)


def row_samples(state: Samples, tokens: str, pooling: str) -> dict[int, tuple[Tensor, Tensor]]:
    """Keys (n,), ascending, and pooled rows (n, D), by layer."""
    reading = row_sample("raw").name
    found = [(key, part) for name, part in state.items() if (key := StateKey.parse(name)) is not None]
    by_layer = {k.layer: part for k, part in found if k == StateKey(k.layer, "raw", tokens, pooling, reading)}
    return {layer: (part.keys, part.rows[:, 0]) for layer, part in sorted(by_layer.items())}


def content_digests(state: Samples) -> dict[int, int]:
    """The digest of id and content of each sampled example, by its hashed id."""
    sample = state.get(CONTENT_DIGESTS)
    return {} if sample is None else dict(zip(sample.keys.tolist(), sample.rows.flatten().tolist(), strict=True))


def load_samples(run: Run) -> Samples:
    """The samples in the newest state of a run; raises RunError with the file name if it is damaged or another's."""
    state = load_state(run)
    accumulators = {} if state is None else state.accumulators
    return {name: part for name, part in accumulators.items() if isinstance(part, RowSample)}

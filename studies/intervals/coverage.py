"""How often the 95 % intervals hold the truth: the expected score at this N, over many simulated data sets.

    python studies/intervals/coverage.py --repetitions 500 --out studies/intervals/coverage.csv

Each data set is drawn anew from one distribution: rows with a steep spectrum around a large mean, as in real layers,
times a length per row. `even` lengths are 1 + 0.3 |normal|; `t3` lengths are |t| with 3 degrees of freedom: a few rows
carry most of the sums. Truth is the mean score over all repetitions: the entropy of N rows is biased against that of
the population, and the interval is about what N rows give. `noted` is the share of data sets whose row says in its
note that the interval may be too narrow.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from layerwise.core.recipe import Readout
from layerwise.metrics.base import Estimate
from layerwise.metrics.catalog import CATALOG
from layerwise.metrics.intervals import TOO_NARROW
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.readings import LIDAR_VIEWS, LayerBatch
from layerwise.verbs.scan.plan import Measurement, ScanPlan
from layerwise.verbs.scan.rows import score
from layerwise.verbs.scan.state import ScanState

METRICS = {metric.name: metric for metric in CATALOG}
HEAD = "metric,rows,lengths,N,D,repetitions,truth,sd,mean_half_width,coverage,noted"


@dataclass(frozen=True)
class Case:
    """Data sets of N rows and D dimensions, and the scores that are made of each."""

    n: int
    width: int
    scores: tuple[tuple[str, RowTreatment], ...]
    lengths: str = "even"
    views: int = 0
    tokens: int = 1


SPECTRAL: tuple[tuple[str, RowTreatment], ...] = (
    ("dataset_entropy", "raw"), ("dataset_entropy", "centered"), ("dataset_entropy", "unit"),
    ("dataset_entropy", "centered_unit"), ("effective_rank", "raw"), ("effective_rank", "unit"),
    ("participation", "raw"), ("participation", "centered"), ("top_share", "raw"), ("top_share", "centered"),
    ("anisotropy", "raw"),
)  # fmt: skip
NEIGHBOURS: tuple[tuple[str, RowTreatment], ...] = (("intrinsic_dimension", "raw"),)
CASES = (
    Case(256, 576, (*SPECTRAL, *NEIGHBOURS), "t3"),
    Case(256, 576, (*SPECTRAL, *NEIGHBOURS)),
    Case(400, 32, SPECTRAL),
    Case(400, 32, SPECTRAL, "t3"),
    Case(256, 128, (("effective_rank", "raw"), ("effective_rank", "unit"))),
    Case(1000, 8, NEIGHBOURS),
    Case(200, 24, (("prompt_entropy", "raw"), ("curvature", "raw")), tokens=12),
    Case(2048, 24, (("infonce", "raw"),), views=2),
    Case(1024, 16, (("dime", "raw"),), views=2),
    Case(256, 12, (("lidar", "raw"),), views=LIDAR_VIEWS),
)


def draw(random: torch.Generator, case: Case) -> LayerBatch:
    n, width = case.n, case.width
    scale = torch.arange(1, width + 1, dtype=torch.float64) ** -0.7
    mean = 1.5 * torch.ones(width, dtype=torch.float64) / width**0.5

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=random)

    length = normal(n, 1).abs()
    if case.lengths == "t3":  # normal / sqrt(chi squared with 3 degrees of freedom / 3)
        length = length / (normal(n, 3) ** 2).mean(dim=1, keepdim=True).sqrt()
    else:
        length = 1 + 0.3 * length
    rows = (mean + scale * normal(n, width)) * length
    pooled = torch.cat([rows[:, None], rows[:, None] + 0.4 * scale * normal(n, case.views, width)], dim=1)
    words = rows[:, None] + normal(n, case.tokens, width)
    keys = torch.randint(-(2**62), 2**62, (n,), generator=random)
    return LayerBatch(keys, words, torch.ones(n, case.tokens, dtype=torch.bool), pooled)


def measure(case: Case, batch: LayerBatch) -> list[Estimate]:
    """The estimates of all scores of a case, made as a scan makes them."""
    plan = ScanPlan(tuple(METRICS[name] for name, _ in case.scores), (0,), depth=1, has_norm=False)
    readout = Readout(0)
    asked = [Measurement(readout, METRICS[name], rows, METRICS[name].reading(rows)) for name, rows in case.scores]
    state = ScanState({})
    for reading, key in {m.key(reading): (reading, m.key(reading)) for m in asked for reading in m.readings}.values():
        state.accumulators[key] = reading.make_accumulator(case.width)
        state.accumulators[key].update(*reading.read(batch))
    finished: dict[tuple[object, ...], object] = {}
    return [score(m, plan, state, case.width, finished) for m in asked]


def lines(case: Case, repetitions: int, seed: int = 0) -> Iterator[str]:
    random = torch.Generator().manual_seed(seed)
    found = [measure(case, draw(random, case)) for _ in range(repetitions)]
    for i, (name, rows) in enumerate(case.scores):
        mine = [estimates[i] for estimates in found]
        value, low, high = torch.tensor([(e.value, e.ci_low, e.ci_high) for e in mine], dtype=torch.float64).unbind(1)
        truth = value.mean()
        covered = ((low <= truth) & (truth <= high)).double().mean()
        noted = sum(TOO_NARROW in e.note for e in mine) / repetitions
        half = ((high - low) / 2).mean()
        yield (
            f"{name},{rows},{case.lengths},{case.n},{case.width},{repetitions},{truth:.4f},{value.std():.4f},{half:.4f},"
            f"{covered:.3f},{noted:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--cases", default="", help="numbers of cases, such as 0,1; default: all")
    parser.add_argument("--seed", type=int, default=0, help="other data sets")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = [HEAD]
    chosen = [CASES[int(i)] for i in args.cases.split(",")] if args.cases else CASES
    for case in chosen:
        for line in lines(case, args.repetitions, args.seed):
            print(line, flush=True)
            table.append(line)
        if args.out:
            args.out.write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()

"""How often the 95 % intervals hold the truth: the expected score at this N, over many simulated data sets.

    python studies/intervals/coverage.py [--repetitions 500]

Each data set is drawn anew from one distribution (heavy-tailed rows with a steep spectrum around a large mean, as in
real layers). Truth is the mean score over all repetitions: the entropy of N rows is biased against that of the
population, and the interval is about what N rows give.
"""

import argparse
from pathlib import Path

import torch

from layerwise.metrics.catalog import CATALOG
from layerwise.metrics.readings import LIDAR_VIEWS, LayerBatch
from layerwise.sweep.plan import Lens, Measurement
from layerwise.sweep.rows import score
from layerwise.sweep.state import ScanState

METRICS = {metric.name: metric for metric in CATALOG}
CASES = [  # metric, rows, N, D
    ("prompt_entropy", "raw", 200, 24),
    ("curvature", "raw", 200, 24),
    ("dataset_entropy", "raw", 400, 32),
    ("dataset_entropy", "centered", 400, 32),
    ("dataset_entropy", "unit", 150, 96),
    ("dataset_entropy", "centered_unit", 400, 32),
    ("effective_rank", "raw", 400, 32),
    ("participation", "centered", 400, 32),
    ("top_share", "raw", 400, 32),
    ("anisotropy", "raw", 400, 32),
    ("intrinsic_dimension", "raw", 1000, 8),
    ("infonce", "raw", 2048, 24),
    ("dime", "raw", 1024, 16),
    ("lidar", "raw", 256, 12),
]


def draw(random: torch.Generator, n: int, width: int, views: int, tokens: int) -> LayerBatch:
    scale = torch.arange(1, width + 1, dtype=torch.float64) ** -0.7
    mean = 1.5 * torch.ones(width, dtype=torch.float64) / width**0.5
    normal = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=random)  # noqa: E731
    length = 1 + 0.3 * normal(n, 1).abs()  # rows differ in length, as prompts do
    rows = (mean + scale * normal(n, width)) * length
    pooled = torch.cat([rows[:, None], rows[:, None] + 0.4 * scale * normal(n, views, width)], dim=1)
    words = rows[:, None] + normal(n, tokens, width)
    keys = torch.randint(-(2**62), 2**62, (n,), generator=random)
    return LayerBatch(keys, words, torch.ones(n, tokens, dtype=torch.bool), pooled)


def measure(name: str, rows: str, batch: LayerBatch) -> tuple[float, float, float]:
    metric, width = METRICS[name], batch.pooled.shape[-1]
    m = Measurement(0, Lens("raw", "all", "mean"), metric, rows, metric.reading(rows))
    state = ScanState({})
    for reading in m.readings:
        kept = reading.start(width)
        kept.update(*reading.read(batch))
        state.kept[m.key(reading)] = kept
    found = score(m, state, width, {})
    return found.value, found.ci_low, found.ci_high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--only", help="one metric")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    lines = ["metric,rows,N,D,repetitions,truth,sd,mean_half_width,coverage"]
    for name, rows, n, width in CASES:
        if args.only and name != args.only:
            continue
        views = LIDAR_VIEWS if name == "lidar" else 2 if name in ("infonce", "dime") else 0
        tokens = 12 if METRICS[name].reading(rows).of == "tokens" else 1
        random = torch.Generator().manual_seed(0)
        found = torch.tensor(
            [measure(name, rows, draw(random, n, width, views, tokens)) for _ in range(args.repetitions)],
            dtype=torch.float64,
        )
        value, low, high = found.unbind(dim=1)
        truth = value.mean()
        covered = ((low <= truth) & (truth <= high)).double().mean()
        half = ((high - low) / 2).mean()
        line = f"{name},{rows},{n},{width},{args.repetitions},{truth:.4f},{value.std():.4f},{half:.4f},{covered:.3f}"
        print(line, flush=True)
        lines.append(line)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

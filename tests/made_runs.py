"""Made-up runs of any size, for tests of what is shown: curves with intervals, scores, checkpoints."""

import math
from typing import Any

from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable

ROWS = ("raw", "centered_unit")
METRICS = ("prompt_entropy", "curvature", "dataset_entropy")


def scan_table(
    model: str = "m", *, depth: int = 5, metrics: Any = METRICS, rows: Any = ROWS, shift: float = 0.0
) -> LayerTable:
    """A scan's table: smooth curves, intervals of 0.1 either way, and the normed last layer."""
    scores = []
    for m, metric in enumerate(metrics):
        for treatment in rows:
            for layer in range(depth + 1):
                value = 2 + m + shift + math.sin(layer / depth * 3 + m + (treatment == "raw"))
                for norm in ("raw", "normed") if layer == depth else ("raw",):
                    scores.append(one(model, layer, depth, metric, value, rows=treatment, norm=norm))
    record = {
        "name": model,
        "revision": "main",
        "fingerprint": f"of {model}",
        "depth": depth,
        "width": 8,
        "family": "f",
    }
    options = {"data": "texts.txt", "limit": 7}
    data = {"name": "texts.txt (first 7)", "options": options, "prompts": 7, "tokens": 70, "cut": 1}
    plan = {"metrics": list(metrics), "rows": list(rows), "tokens": ["all"], "max_length": 64, "seed": 0}
    return LayerTable(tuple(scores), {"kind": "scan", "model": record, "data": data, "plan": plan, "seconds": 1.5})


def eval_table(model: str = "m", *, depth: int = 5, tasks: Any = ("STS12", "Banking77Classification")) -> LayerTable:
    """Scores that are best at two thirds of the depth."""
    scores = []
    for t, task in enumerate(tasks):
        for layer in range(depth + 1):
            value = 60 + t - 10 * abs(layer / depth - 2 / 3)
            more = {"rows": "-", "pooling": "mean", "data": "STS: cosine_spearman"}
            scores.append(one(model, layer, depth, task, value, **more))
        scores.append(one(model, depth, depth, task, 51.0 + t, norm="normed", **more))
    record = {"name": model, "revision": "main", "fingerprint": f"of {model}"}
    facts = {"type": "STS", "score": "cosine_spearman", "examples": 9, "of": 9, "source": "local"}
    options = {"verb": "eval", "model": {"name": model}, "tasks": list(tasks), "data_root": "ROOT", "max_length": 64}
    run = {"kind": "eval", "model": record, "tasks": {task: facts for task in tasks}, "max_length": 64}
    return LayerTable(tuple(scores), {**run, "options": options})


def stress_table(model: str = "m", *, depth: int = 5, levels: Any = (0.0, 0.5, 1.0)) -> LayerTable:
    scores, runs = [], []
    for level in levels:
        for layer in range(depth + 1):
            value = 3 - level + layer / depth
            scores.append(one(model, layer, depth, "prompt_entropy", value, condition="random", level=level))
        run = scan_table(model, depth=depth).run
        options = {"verb": "stress", "model": {"name": model}, "data": None, "kind": "random", "levels": list(levels)}
        stressed = {**run["plan"], "stress": {"kind": "random", "level": level}}
        runs.append({**run, "plan": stressed, "options": options})
    return LayerTable(tuple(scores), {"kind": "joined", "runs": runs})


def one(model: str, layer: int, depth: int, metric: str, value: float, **more: Any) -> LayerScore:
    given = {"norm": "raw", "tokens": "all", "pooling": "-", "rows": "raw", "n": 7}
    interval = {} if more.get("rows") == "-" else {"ci_low": value - 0.1, "ci_high": value + 0.1}
    return LayerScore(
        model=model, layer=layer, depth=layer / depth, metric=metric, value=value, **(given | interval | more)
    )

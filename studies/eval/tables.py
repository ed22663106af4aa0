"""Collects the tables of evaluations into scores.csv, and prints best and last layer by type of task.

python studies/eval/tables.py OUT RUN...
"""

import sys
from pathlib import Path

import pandas as pd

import layerwise
from layerwise.runs.tasks import task_sizes


def collect(runs: list[Path]) -> pd.DataFrame:
    """Bare layers of all runs, a row a model, choice of tokens, layer and task."""
    frames = []
    for run in runs:
        table = layerwise.LayerTable.load(run)
        frame = table.to_pandas()
        frame = frame[frame["transform"] == "none"]
        kinds = frame.data.str.split(": ", expand=True)
        capped = frame.metric.map(task_sizes(table.run))
        frame = frame.assign(model=run.name, type=kinds[0], score=kinds[1], examples=capped, value=frame.value.round(3))
        frames.append(frame)
    names = ["model", "tokens", "layer", "norm", "metric", "type", "score", "value", "examples"]
    return pd.concat(frames)[names].rename(columns={"metric": "task"}).sort_values(names[:4] + ["task"])


def best_and_last(scores: pd.DataFrame) -> pd.DataFrame:
    """By model, tokens and type: the last layer as people use it, the best single layer, and the best of each task."""
    rows = []
    for (model, tokens), group in scores.groupby(["model", "tokens"], sort=False):
        depth = group.layer.max()
        normed = "normed" if "normed" in set(group.norm) else "raw"
        for kind in ["all tasks", *sorted(set(group.type))]:
            some = group if kind == "all tasks" else group[group.type == kind]
            grid = some.pivot_table(index="task", columns=["layer", "norm"], values="value")
            last, means = grid[depth, normed], grid.mean()
            rows.append({
                "model": model, "tokens": tokens, "type": kind, "tasks": len(grid), "last": last.mean(),
                "best layer": " ".join(map(str, means.idxmax())), "its mean": means.max(),
                "gain": means.max() - last.mean(), "best of each task": grid.max(axis=1).mean(),
                "tasks it wins": int((grid[means.idxmax()] > last).sum()),
            })  # fmt: skip
    return pd.DataFrame(rows)


if __name__ == "__main__":
    out, *runs = map(Path, sys.argv[1:])
    scores = collect(runs)
    scores.to_csv(out / "scores.csv", index=False)
    summary = best_and_last(scores).round(2)
    summary.to_csv(out / "best_and_last.csv", index=False)
    print(summary.to_string(index=False))

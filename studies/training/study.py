"""Trains small models on WikiText-2 with the callback, with and without the entropy regulariser.

    python studies/training/study.py train --data wikitext2 --runs RUNS     # about five CPU minutes
    python studies/training/study.py score --tasks TASKS --runs RUNS        # STS tasks, made by `layerwise lab data`
    python studies/training/study.py table --runs RUNS                      # the CSV files
    python studies/training/study.py figure --runs RUNS                     # docs/images/training.png

A training that is complete is left alone.
"""

import argparse
import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import layerwise

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "training"))

SEEDS, WEIGHTS = (0, 1, 2), (0.0, 1.0)
STEPS = {"gpt_neox": 256, "modernbert": 256, "mamba": 64}
REGULARISER_STEPS = 128
TASKS = "STSBenchmark,STS16,BIOSSES"
MIDDLE = 3  # the layer that the regulariser acts on, of 6


@dataclass(frozen=True)
class Training:
    """One training: what decides its weights, besides the data."""

    family: str
    seed: int
    weight: float  # of the entropy regulariser
    steps: int

    @property
    def name(self) -> str:
        return f"{self.family}-{self.steps}-{self.seed}" + (f"-{self.weight:g}" if self.weight else "")


WATCHED = [Training(family, 0, 0.0, steps) for family, steps in STEPS.items()]
REGULARISED = [Training("gpt_neox", seed, weight, REGULARISER_STEPS) for seed in SEEDS for weight in WEIGHTS]


def train(data: Path, runs: Path) -> None:
    import wikitext

    for one in [*WATCHED, *REGULARISED]:
        out = runs / one.name
        if not (out / "result.json").exists():
            wikitext.train(one.family, data, out, seed=one.seed, layer_loss=one.weight, steps=one.steps)


def score(tasks: Path, runs: Path) -> None:
    """Scores every layer, with the mean over all tokens, on three STS tasks."""
    import torch
    import wikitext
    from transformers import AutoTokenizer

    for one in REGULARISED:
        out = runs / one.name / "scores"
        layerwise.eval(str(runs / one.name / "model"), TASKS, data_root=tasks, out=out, pooling="mean")
    for seed in SEEDS:  # the same models before the first step
        folder = runs / f"untrained-{seed}"
        tokenizer = AutoTokenizer.from_pretrained(runs / REGULARISED[0].name / "model")
        torch.manual_seed(seed)
        wikitext.make_model("gpt_neox", wikitext.SIZES["small"], tokenizer).base_model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        layerwise.eval(str(folder / "model"), TASKS, data_root=tasks, out=folder / "scores", pooling="mean")


def write(name: str, rows: list[dict[str, object]]) -> None:
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def curves(runs: Path) -> list[dict[str, object]]:
    """One row per scan, layer and metric of the trainings without a regulariser."""
    rows: list[dict[str, object]] = []
    for one in WATCHED:
        for folder in sorted((runs / one.name / "layers").iterdir()):
            for found in layerwise.Run.open(folder).table.where(norm="raw"):
                place = {"family": one.family, "step": int(folder.name.removeprefix("step")), "layer": found.layer}
                rows.append(place | {"metric": found.metric, "rows": found.rows, "value": f"{found.value:.4f}"})
    return rows


def trainings(runs: Path) -> list[dict[str, object]]:
    """One row per training: its size, loss and cost."""
    rows: list[dict[str, object]] = []
    for one in [*WATCHED, *REGULARISED]:
        result = json.loads((runs / one.name / "result.json").read_text())
        kept = {name: result[name] for name in ("family", "seed", "layer_loss", "steps", "tokens", "parameters")}
        cost = {"validation_loss": f"{result['validation_loss']:.4f}", "cpu_seconds": f"{result['cpu_seconds']:.1f}"}
        rows.append(kept | cost | {"share_of_scans": f"{result['seconds_of_scans'] / result['seconds']:.3f}"})
    return rows


def regulariser(runs: Path) -> list[dict[str, object]]:
    """One row per seed and weight: effective rank, validation loss and the mean score of the best layer on STS."""
    rows: list[dict[str, object]] = []
    for one in REGULARISED:
        result = json.loads((runs / one.name / "result.json").read_text())
        last = layerwise.Run.open(runs / one.name / "layers" / f"step{one.steps:06d}").table
        row: dict[str, object] = {"seed": one.seed, "weight": one.weight}
        row["validation_loss"] = f"{result['validation_loss']:.4f}"
        for layer in (MIDDLE - 1, MIDDLE, MIDDLE + 1):
            for metric in ("effective_rank", "prompt_entropy"):
                (found,) = last.where(metric=metric, rows="centered", layer=layer, norm="raw")
                row[f"{metric}_{layer}"] = f"{found.value:.3f}"
        means, untrained = (mean_scores(runs / name) for name in (one.name, f"untrained-{one.seed}"))
        row |= {"tasks": len(TASKS.split(",")), "best_layer": int(means.idxmax()), "best_score": f"{means.max():.2f}"}
        row |= {"last_score": f"{means.iloc[-1]:.2f}", "untrained_score": f"{untrained.max():.2f}"}
        rows.append(row)
    return rows


def mean_scores(folder: Path) -> pd.Series:
    """The mean score over the tasks, by layer."""
    scores = layerwise.Run.open(folder / "scores").table.to_pandas()
    return scores[scores.norm == "raw"].groupby("layer").value.mean()


def figure(runs: Path) -> None:
    """Heat maps of layer by step, one row per model and one column per metric."""
    import matplotlib.pyplot as plt

    metrics = ("prompt_entropy", "effective_rank", "curvature")
    _, axes = plt.subplots(len(WATCHED), len(metrics), figsize=(11, 9), constrained_layout=True)
    for line, one in zip(axes, WATCHED, strict=True):
        folders = sorted((runs / one.name / "layers").iterdir())
        for ax, metric in zip(line, metrics, strict=True):
            rows = "raw" if metric == "curvature" else "centered"
            layerwise.plot(folders, figure="checkpoints", metric=metric, rows=rows, ax=ax)
            ax.set_title(one.family, fontsize=9)
    plt.savefig(ROOT / "docs" / "images" / "training.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "score", "table", "figure"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    given = parser.parse_args()
    if given.what == "train":
        train(given.data, given.runs)
    elif given.what == "score":
        score(given.tasks, given.runs)
    elif given.what == "figure":
        figure(given.runs)
    else:
        write("curves.csv", curves(given.runs))
        write("trainings.csv", trainings(given.runs))
        write("regulariser.csv", regulariser(given.runs))


if __name__ == "__main__":
    main()

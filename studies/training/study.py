"""Trains small models on WikiText-2 with the callback, with and without the entropy regulariser.

    python studies/training/study.py train --data wikitext2 --runs RUNS       # a few CPU minutes in all
    python studies/training/study.py table --runs RUNS                        # curves.csv, regulariser.csv

A training that is complete is left alone.
"""

import argparse
import csv
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "examples" / "training"))
import wikitext  # noqa: E402

import layerwise  # noqa: E402

SEEDS, WEIGHTS = (0, 1, 2), (0.0, 1.0)
PLAN = [("gpt_neox", 0, 0.0), ("modernbert", 0, 0.0)]
PLAN += [("gpt_neox", seed, weight) for seed in SEEDS for weight in reversed(WEIGHTS) if (seed, weight) != (0, 0.0)]
PLAN += [("mamba", 0, 0.0)]


def name_of(family: str, seed: int, weight: float) -> str:
    return f"{family}-{seed}" + (f"-{weight:g}" if weight else "")


def train(data: Path, runs: Path) -> None:
    for family, seed, weight in PLAN:
        out = runs / name_of(family, seed, weight)
        if not (out / "result.json").exists():
            wikitext.train(family, data, out, seed=seed, layer_loss=weight, steps=128 if family == "mamba" else None)


def write(name: str, rows: list[dict[str, object]]) -> None:
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def curves(runs: Path) -> list[dict[str, object]]:
    """One row per scan, layer and metric of the trainings without a regulariser and with seed 0."""
    rows = []
    for family in wikitext.FAMILIES:
        for folder in sorted((runs / name_of(family, 0, 0.0) / "layers").iterdir()):
            for score in layerwise.Run.open(folder).table:
                if score.norm == "raw":
                    place = {"family": family, "step": int(folder.name.removeprefix("step")), "layer": score.layer}
                    rows.append(place | {"metric": score.metric, "rows": score.rows, "value": f"{score.value:.4f}"})
    return rows


def results(runs: Path) -> list[dict[str, object]]:
    """One row per training: its size, loss and cost."""
    kept = ("family", "seed", "layer_loss", "steps", "tokens", "parameters", "validation_loss", "seconds_of_scans")
    rows = []
    for plan in PLAN:
        result = json.loads((runs / name_of(*plan) / "result.json").read_text())
        share = result["seconds_of_scans"] / result["seconds"]
        row = {name: round(result[name], 4) if isinstance(result[name], float) else result[name] for name in kept}
        rows.append(row | {"share_of_scans": round(share, 3), "cpu_seconds": round(result["cpu_seconds"], 1)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    given = parser.parse_args()
    if given.what == "train":
        train(given.data, given.runs)
    else:
        write("curves.csv", curves(given.runs))
        write("trainings.csv", results(given.runs))


if __name__ == "__main__":
    main()

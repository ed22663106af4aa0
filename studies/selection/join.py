"""Joins what own.py wrote for one model at a time, and audits rules over layers on all of them together.

    python studies/selection/join.py MODELS.json OUT FOLDER...

Writes OUT/test_probes.csv, OUT/test_recipes.csv and OUT/test_layers.csv. What the shipped rules choose when only the
layer is free is in picks.json, by rule and model; a model that is not named keeps its last layer.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from own import RULES, cases_of

from layerwise.selection.audit import audit, audit_rows
from layerwise.selection.rules import parse_rule


def main(models: Path, out: Path, *folders: Path) -> None:
    entries = json.loads(models.read_text())
    joined = {}
    for name in ("test_probes.csv", "test_recipes.csv"):
        frame = pd.concat([pd.read_csv(folder / name) for folder in folders]).drop_duplicates()
        joined[name] = frame
    cases = []
    for entry in entries:
        probes = joined["test_probes.csv"]
        cases += cases_of(entry, probes[probes.model == entry["name"]])
    rows = []
    for rule, layers in json.loads((out / "picks.json").read_text()).items():
        rows += audit_rows(rule, cases, np.array([case.score_at(layers.get(case.model, case.depth)) for case in cases]))
    one = np.array([case.score_at(best_single(cases, case.model)) for case in cases])
    rows += audit_rows("the best single layer of each model (nobody can know it)", cases, one)
    table = pd.concat([audit(cases, [parse_rule(word) for word in RULES]), pd.DataFrame(rows)])
    for name, frame in (joined | {"test_layers.csv": table.round(4)}).items():
        frame.to_csv(out / name, index=False)
    shown = ["rule", "chosen", "last", "best", "recovered", "low_tasks", "high_tasks", "loses_a_point",
             "models_below_last", "worst_loss"]  # fmt: skip
    print(table[table.family == "all"][shown].round(3).to_string(index=False))


def best_single(cases: list, model: str) -> int:
    scores = np.array([case.scores for case in cases if case.model == model])
    return int(np.nanmean(scores, axis=0).argmax())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

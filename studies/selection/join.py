"""Joins what own.py wrote for one model at a time, and audits rules over layers on all of them together.

    python studies/selection/join.py development|test MODELS.json OUT FOLDER...

Writes OUT/PART_probes.csv, OUT/PART_recipes.csv and OUT/PART_layers.csv. What the shipped rules choose when only the
layer is free is in picks.json, by part, rule and model; a model that is not named keeps its last layer.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from own import RULES, cases_of

from layerwise.verbs.lab.audit.regret import audit, audit_rows
from layerwise.verbs.pick.rules import parse_rule


def main(part: str, models: Path, out: Path, *folders: Path) -> None:
    entries = json.loads(models.read_text())
    joined = {}
    for name in ("probes", "recipes"):
        joined[name] = pd.concat([pd.read_csv(folder / f"{part}_{name}.csv") for folder in folders]).drop_duplicates()
    cases = []
    for entry in entries:
        probes = joined["probes"]
        cases += cases_of(entry, probes[probes.model == entry["name"]])
    rows = []
    for rule, layers in json.loads((out / "picks.json").read_text())[part].items():
        rows += audit_rows(rule, cases, np.array([case.score_at(layers.get(case.model, case.depth)) for case in cases]))
    one = np.array([case.score_at(best_single(cases, case.model)) for case in cases])
    rows += audit_rows("the best single layer of each model (nobody can know it)", cases, one)
    table = pd.concat([audit(cases, [parse_rule(word) for word in RULES]), pd.DataFrame(rows)])
    for name, frame in (joined | {"layers": table.round(4)}).items():
        frame.to_csv(out / f"{part}_{name}.csv", index=False)
    shown = ["rule", "chosen", "last", "best", "recovered", "low_tasks", "high_tasks", "loses_a_point",
             "models_below_last", "worst_loss"]  # fmt: skip
    print(table[table.family == "all"][shown].round(3).to_string(index=False))


def best_single(cases: list, model: str) -> int:
    return int(pd.DataFrame([case.scores for case in cases if case.model == model]).mean().idxmax())


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))

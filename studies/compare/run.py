"""How the curves of a small decoder form during training, as one table (training.csv).

    python studies/compare/run.py RUNS/step8 RUNS/step64 RUNS/step629

The runs are those of the checkpoints in studies/scan.
"""

import sys
from pathlib import Path

import pandas as pd

import layerwise

SETTINGS = (("raw", "all"), ("centered_unit", "no_first"))


def main(runs: list[str]) -> None:
    rows = []
    for treatment, tokens in SETTINGS:
        for pair in layerwise.compare(runs, against="previous", rows=treatment, tokens=tokens).pairs:
            shown = pair.changes[pair.changes.norm == "raw"].assign(pair=f"{pair.first} to {pair.second}")
            moved, cka = shown.layer.map(pair.change_by_layer()), [pair.cka.at(layer, layer) for layer in shown.layer]
            rows.append(shown.assign(moved=moved, cka=cka))
    kept = ["pair", "rows", "tokens", "metric", "layer", "before", "after", "difference", "ci_low", "ci_high", "paired"]
    table = pd.concat(rows)[[*kept, "share", "moved", "cka"]]
    table = table[table.metric.isin(["prompt_entropy", "dataset_entropy", "curvature", "anisotropy"])]
    table.round(4).to_csv(Path(__file__).with_name("training.csv"), index=False)


if __name__ == "__main__":
    main(sys.argv[1:])

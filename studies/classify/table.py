"""Writes the tables of README.md from scores.csv and serving.csv.

python studies/classify/table.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rows import TABLE, unpacked

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
SAMPLES = 10_000
BEGIN, END = "<!-- scores: written by table.py -->", "<!-- end of scores -->"
HEADER = (
    "| model | data | per class | words | last layer | chosen (layer) | `fast` (layer) | chosen - last (95 %) "
    "| fine-tuned | fine-tuned - chosen (95 %) |"
)


def gap(first: Any, second: Any) -> str:
    """The paired difference of two rows in points, with its 95 % interval by bootstrap over test examples."""
    differences = unpacked(first).astype(float) - unpacked(second).astype(float)
    random = np.random.default_rng(0)
    means = 100 * differences[random.integers(0, len(differences), (SAMPLES, len(differences)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{100 * differences.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def cells() -> dict[tuple[str, str, int], dict[str, Any]]:
    """The rows of each model, data set and number of examples, by method; with those of the words."""
    table = pd.read_csv(TABLE, dtype={"layer": "Int64"})
    words = {(row.data, row.shots): row for row in table.itertuples() if row.model == "words"}
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in table.itertuples():
        if row.model != "words":
            cell = found.setdefault((row.model, row.data, row.shots), {})
            cell[row.method] = row
            if (row.data, row.shots) in words:
                cell["words"] = words[row.data, row.shots]
    return {key: cell for key, cell in sorted(found.items()) if "quality" in cell}


def mean_and_worst(model: str, method: str = "quality", other: str = "last") -> tuple[float, float, int]:
    """The mean difference in points of two methods over a model's cells that have both, the worst, and how many."""
    found = [
        cell[method].accuracy - cell[other].accuracy
        for (name, _, _), cell in cells().items()
        if name == model and {method, other} <= {*cell}
    ]
    return float(np.mean(found)), min(found), len(found)


def markdown() -> str:
    lines = [HEADER, "|" + "---|" * (HEADER.count("|") - 1)]
    for (model, data, shots), cell in cells().items():
        shown = [model, data, str(shots), f"{cell['words'].accuracy:.1f}" if "words" in cell else ""]
        shown.append(f"{cell['last'].accuracy:.1f}")
        shown += [f"{cell[method].accuracy:.1f} ({cell[method].layer})" for method in ("quality", "fast")]
        shown.append(gap(cell["quality"], cell["last"]))
        tuned = cell.get("finetuned") or cell.get("lora")
        shown += [""] * 2 if tuned is None else [f"{tuned.accuracy:.1f}", gap(tuned, cell["quality"])]
        lines.append(" ".join(["|", *(f"{one} |" if one else "|" for one in shown)]))
    return "\n".join(lines)


def main() -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{markdown()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

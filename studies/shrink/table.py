"""The table of README.md, from scores.csv and models.csv.

python studies/shrink/table.py
"""

import math
from pathlib import Path

import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent


def main() -> None:
    scores, models = pd.read_csv(HERE / "scores.csv"), pd.read_csv(HERE / "models.csv")
    by_task = scores.pivot(index="task", columns="cell", values="score")
    print(
        "| model | method | blocks | kept | texts | mean | against the whole (95 %) | cosine | MRR of queries | time |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in models.itertuples():
        whole = models[(models.model == row.model) & (models.method == "whole")]
        difference = "-"
        if len(whole) and row.method != "whole":
            gaps = (by_task[row.cell] - by_task[whole.cell.iloc[0]]).dropna()
            error = t.ppf(0.975, len(gaps) - 1) * gaps.std() / math.sqrt(len(gaps))
            difference = f"{gaps.mean():+.1f} ({gaps.mean() - error:+.1f} to {gaps.mean() + error:+.1f})"
        method = f"{row.method} {row.minutes:g} min" if row.minutes else row.method
        kept = getattr(row, "kept", None)
        cells = [
            row.model, method, row.blocks or "-", kept if isinstance(kept, str) else "-", row.texts or "-",
            f"{by_task[row.cell].mean():.1f}", difference, number(row, "mean_cosine", 2), queries(row),
            number(row, "latency", 2),
        ]  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |")


def number(row: object, name: str, digits: int) -> str:
    value = getattr(row, name, float("nan"))
    return "-" if value != value else f"{value:.{digits}f}"


def queries(row: object) -> str:
    found = number(row, "query_mrr", 3)
    return found if found == "-" else f"{found} of {number(row, 'whole_mrr', 3)}"


if __name__ == "__main__":
    main()

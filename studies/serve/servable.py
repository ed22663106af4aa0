"""What `--servable` costs two language models on 16 tasks: `python servable.py`, from ../recipes/test.csv.

The servable recipe is `template` of that study: prompteol, last token, last layer behind the final norm, no map. It is
compared with the best recipe of the study, which servers cannot compute (`all_dimensions`: a raw layer, last token and
mean, a map), and with the last layer and its mean, which they can. Means are over types of task; intervals are 95 %, by
drawing tasks again within each type.
"""

from pathlib import Path

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
MODELS, DRAWS = ("smollm2-135m", "gemma3-270m"), 5000


def mean_of_types(scores: pd.Series) -> float:
    return float(scores.groupby(level="type").mean().mean())


def interval(difference: pd.Series) -> tuple[float, float]:
    random = np.random.default_rng(0)
    types = [group.to_numpy() for _, group in difference.groupby(level="type")]
    draws = [np.mean([random.choice(values, len(values)).mean() for values in types]) for _ in range(DRAWS)]
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def main() -> None:
    table = pd.read_csv(HERE.parent / "recipes" / "test.csv")
    rows = []
    for model in MODELS:
        scores = table[table.model == model].pivot(index=["type", "task"], columns="recipe", values="score")
        for other in ("all_dimensions", "last"):
            difference = scores["template"] - scores[other]
            means = [mean_of_types(scores[name]) for name in ("template", other)]
            row = [model, other, len(difference), *means, means[0] - means[1], *interval(difference)]
            rows.append([round(x, 2) if isinstance(x, float) else x for x in row])
    columns = ["model", "against", "tasks", "servable", "other", "difference", "low", "high"]
    pd.DataFrame(rows, columns=columns).to_csv(HERE / "servable.csv", index=False)


if __name__ == "__main__":
    main()

"""The tables of README.md, from the CSV files.

python studies/static/table.py
"""

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from scipy.stats import t

HERE = Path(__file__).parent
TYPES = {
    "STS": "SICK-R STS12 STS13 STS14 STS15 STS16 STSBenchmark BIOSSES",
    "pairs": "MRPC TwitterURLCorpus",
    "classification": "AmazonCounterfactualClassification Banking77Classification EmotionClassification "
    "MassiveIntentClassification MassiveScenarioClassification TweetSentimentExtractionClassification",
    "clustering": "BiomedicalTitlesClustering StackOverflowTitlesClustering TwentyNewsgroupsClustering",
    "search": "TrecQAReranking WikiQAReranking WikiQARetrieval",
}


def line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def csv(name: str) -> pd.DataFrame:
    path = HERE / name
    return pd.read_csv(path) if path.is_file() else pd.DataFrame()


def difference(gaps: pd.Series) -> str:
    """The mean of paired differences over tasks, with a 95 % interval."""
    error = t.ppf(0.975, len(gaps) - 1) * gaps.std() / math.sqrt(len(gaps))
    return f"{gaps.mean():+.2f} ({gaps.mean() - error:+.2f} to {gaps.mean() + error:+.2f})"


def test_scores() -> pd.DataFrame:
    """One column per model and method, one row per test task."""
    scores = csv("scores.csv")
    return scores[~scores.development].pivot(index="task", columns=["model", "method"], values="score")


def lines_of_scores() -> Iterator[str]:
    """Means over the test tasks, all and by type; and the difference from model2vec's on the same tasks."""
    table = test_scores()
    yield line("teacher", "method", "mean", *TYPES, "against model2vec (95 %)")
    yield "|" + "---|" * (4 + len(TYPES))
    for model, method in sorted(table.columns, key=lambda pair: (pair[0], -table[pair].mean())):
        own = table[model, method]
        means = [f"{own[own.index.isin(names.split())].mean():.1f}" for names in TYPES.values()]
        peer = table.get((model, "model2vec"))
        gap = difference(own - peer) if peer is not None and method != "model2vec" else "-"
        yield line(model, method, f"{own.mean():.2f}", *means, gap)


def lines_of_choices() -> Iterator[str]:
    """Means over the development tasks, and the differences from the first line of the same teacher."""
    table = csv("choices.csv")
    settings = ["layer", "tokens", "weights", "words", "map", "texts", "dims"]
    tasks = [name for name in table.columns if name in " ".join(TYPES.values()).split()]
    yield line(
        "teacher",
        "layer",
        "tokens",
        "weights",
        "words",
        "map",
        "texts",
        "dimensions",
        "unexplained",
        "mean",
        "difference (95 %)",
    )
    yield "|" + "---|" * 11
    for model, rows in table.groupby("model", sort=False):
        first = rows.iloc[0]
        for i, row in rows.iterrows():
            cells = ["last" if row.layer < 0 else row.layer, *(row[name] for name in settings[1:5])]
            cells += [
                row.texts or "all",
                row.dims or "all",
                "-" if row.unexplained != row.unexplained else f"{row.unexplained:.2f}",
            ]
            gap = "-" if i == rows.index[0] else difference((row[tasks] - first[tasks]).astype(float))
            yield line(model, *cells, f"{row['mean']:.2f}", gap)


def lines_of_costs() -> Iterator[str]:
    yield line("teacher", "model", "texts per second", "times as fast", "megabytes")
    yield "|" + "---|" * 5
    for row in csv("costs.csv").itertuples():
        yield line(
            row.model, row.method, f"{row.texts_per_second:,.0f}", f"{row.times_as_fast:.0f}", f"{row.megabytes:.0f}"
        )


def lines_of_index() -> Iterator[str]:
    yield line("teacher", "its own", "static queries", "static documents", "static alone")
    yield "|" + "---|" * 5
    for row in csv("index.csv").itertuples():
        found = (row.teacher, row.static_queries, row.static_documents, row.static)
        yield line(row.model, *(f"{value:.3f}" for value in found))


def main() -> None:
    for lines in (lines_of_scores, lines_of_choices, lines_of_costs, lines_of_index):
        print("\n".join(lines()), end="\n\n")


if __name__ == "__main__":
    main()

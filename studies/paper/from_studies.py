"""Figs. 1, 3, 8 and 9 and the rule of least entropy for models that other studies have measured; runs no model.

    python studies/paper/from_studies.py studies studies/paper

Metrics are those of studies/scan (256 paragraphs of WikiText-2), scores those of studies/eval (22 tasks), both before
the final norm. Writes own_scores.csv (mean over tasks by layer), own_correlations.csv and own_rules.csv.
"""

import sys
import warnings
from pathlib import Path

import pandas as pd

import layerwise
from layerwise import LayerScore, LayerTable

MODELS = ["smollm2-135m", "gemma3-270m", "stories15m", "gptneox-step629", "gte-small", "all-minilm-l6-v2"]
RULES = (
    "last,second_to_last,depth:50%,depth:80%,min:prompt_entropy,max:prompt_entropy,min:dataset_entropy,"
    "max:dataset_entropy"
)


def table(kind: str, model: str, rows: list[tuple[int, str, str, str, float]]) -> LayerTable:
    """A table of (layer, metric, rows, tokens, value)."""
    blocks = max(layer for layer, *_ in rows)
    scores = [
        LayerScore(model, layer, layer / blocks, "raw", tokens, "-" if kind == "scan" else "mean", how, name, value, 0)
        for layer, name, how, tokens, value in rows
    ]
    return LayerTable(tuple(scores), {"kind": kind})


def read(studies: Path, model: str) -> tuple[LayerTable, LayerTable, dict[str, float]]:
    """Metrics, scores, and for each task the score of the last layer after the final norm."""
    curves = pd.read_csv(studies / "scan/curves.csv")
    curves = curves[(curves.model == model.replace("-step", " step ")) & (curves.readout == "raw")]
    long = curves.drop(columns=["model", "readout"]).melt("layer").dropna()
    metrics = [(k, *name.split(), value) for k, name, value in long.itertuples(index=False)]
    scores = pd.read_csv(studies / "eval/scores.csv").query("model == @model and tokens == 'all'")
    before = scores[scores.readout == "raw"]
    rows = [
        (k, task, "-", "all", value) for k, task, value in before[["layer", "task", "value"]].itertuples(index=False)
    ]
    last = scores[scores.layer == scores.layer.max()].sort_values("readout").groupby("task").value.first()
    return table("scan", model, [row for row in metrics if row[3] == "all"]), table("eval", model, rows), dict(last)


def main(studies: Path, out: Path) -> None:
    warnings.simplefilter("ignore")  # that few layers make correlations unreliable is said in the README
    means, correlations, known, measured = [], [], [], []
    for model in MODELS:
        scan, scores, last = read(studies, model)
        frame = scores.to_pandas()
        for layer, value in frame.groupby("layer").value.mean().items():
            means.append((model, layer, "raw", value))
        means.append((model, frame.layer.max(), "last", sum(last.values()) / len(last)))
        found = layerwise.lab.correlate(scan, scores)
        grouped = found.groupby(["metric", "rows"])
        part = grouped[["spearman", "kendall", "distance"]].mean()
        part["positive"] = grouped.spearman.agg(lambda values: (values > 0).mean())
        correlations.append(
            part.reset_index().assign(model=model, layers=found.layers.max(), tasks=found.task.nunique())
        )
        end = frame.layer.max()
        for row in frame.itertuples():
            known.append((model, model, row.metric, row.layer, last[row.metric] if row.layer == end else row.value))
        for row in scan:
            if row.rows in ("centered_unit", "-") or row.metric not in ("prompt_entropy", "dataset_entropy"):
                measured.append((model, "", row.layer, row.metric, row.value))
    pd.DataFrame(means, columns=["model", "layer", "norm", "score"]).round(3).to_csv(
        out / "own_scores.csv", index=False
    )
    pd.concat(correlations).round(4).to_csv(out / "own_correlations.csv", index=False)
    rules = layerwise.lab.audit(
        pd.DataFrame(known, columns=["family", "model", "task", "layer", "score"]),
        pd.DataFrame(measured, columns=["model", "task", "layer", "metric", "value"]),
        rules=RULES,
    )
    kept = ["rule", "family", "pairs", "chosen", "last", "best", "recovered", "low_tasks", "high_tasks", "below_last"]
    rules[kept].round(4).to_csv(out / "own_rules.csv", index=False)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

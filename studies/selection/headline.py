"""The figures that README.md and docs/pick.md quote, computed from the committed tables alone.

    python studies/selection/headline.py

Reads test_recipes.csv, test_ideas.csv, ablation.csv, test_labels.csv, picks.json and ../eval/scores.csv; writes
headline.csv. Intervals are of 95 %, by drawing tasks again with replacement; two decoders are too few to draw models.
`texts`: one map per model, fitted on 1,000 paragraphs of WikiText-2 train. `task`: transductive, one map for each task,
fitted on the unlabelled texts of its own test set.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from layerwise.selection.audit import figures
from layerwise.selection.cases import Case, cases_from_frames

HERE = Path(__file__).parent
DECODERS = {"smollm2-135m": ("28", "remove_top:8", 1), "gemma3-270m": ("13", "remove_top:3", 16)}  # layer, map, bare
FAMILIES = {
    "smollm2-135m": "SmolLM2", "gemma3-270m": "Gemma3", "gte-small": "gte", "all-minilm-l6-v2": "MiniLM",
    "paraphrase-minilm-l3-v2": "MiniLM",
}  # fmt: skip
RETRIEVAL = "WikiQARetrieval"
DRAWS = 10_000


def interval(difference: pd.Series) -> tuple[float, float]:
    """The 95 % interval of a mean over tasks, by drawing tasks again."""
    drawn = np.random.default_rng(0).choice(difference.to_numpy(), (DRAWS, len(difference))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def recipe_scores() -> pd.DataFrame:
    """One row per decoder, fit, recipe and task."""
    ideas, bare = pd.read_csv(HERE / "test_ideas.csv"), bare_layers()
    ideas = ideas[ideas.tokens == "all"]
    rows = []
    for model, (layer, word, alone) in DECODERS.items():
        own = ideas[ideas.model == model]
        named = {"static": ("0", "whiten"), "chosen without static": (layer, word), "chosen": (layer, f"{word}+static")}
        for fit in ("texts", "task"):
            usual = own[own.fitted_on == "-"]
            rows.append(usual.assign(recipe="last", fitted_on=fit))
            for name, (at, transform) in named.items():
                found = own[(own.fitted_on == fit) & (own.layer == int(at)) & (own["transform"] == transform)]
                rows.append(found.assign(recipe=name))
        layer_alone = bare[(bare.model == model) & (bare.layer == alone) & (bare.readout == "raw")]
        rows.append(layer_alone.assign(recipe="layer alone", fitted_on="texts", score=layer_alone.value))
    known = pd.concat(rows)[["model", "fitted_on", "recipe", "task", "type", "score"]]
    if (HERE / "ablation.csv").exists():
        ablation = pd.read_csv(HERE / "ablation.csv").assign(fitted_on="texts")
        known = pd.concat([known, ablation[ablation.recipe.str.startswith("last +")][known.columns]])
    return known


def bare_layers() -> pd.DataFrame:
    scores = pd.read_csv(HERE.parent / "eval" / "scores.csv")
    return scores[scores.tokens == "all"]


def gains(scores: pd.DataFrame) -> list[dict[str, object]]:
    """Each recipe's mean, and its gain over the last layer and over the static baseline, on the tasks it was scored on."""
    rows = []
    grid = scores.pivot_table(index=["fitted_on", "task"], columns=["model", "recipe"], values="score")
    for fit, part in grid.groupby(level="fitted_on"):
        for recipe in dict.fromkeys(scores.recipe):
            for models in (*((model,) for model in DECODERS), tuple(DECODERS)):
                if any((model, recipe) not in part or part[model, recipe].isna().all() for model in models):
                    continue
                one = {base: sum(part[m, base] for m in models) / len(models) for base in (recipe, "last", "static")}
                done = one[recipe].notna()
                told = {"models": "+".join(models), "fitted_on": fit, "recipe": recipe, "tasks": int(done.sum())}
                rows.append({"figure": "mean", **told, "value": one[recipe][done].mean()})
                for base in ("last", "static"):
                    gain = (one[recipe] - one[base])[done]
                    low, high = interval(gain)
                    rows.append({"figure": f"over {base}", **told, "value": gain.mean(), "low": low, "high": high})
                rest = (one[recipe] - one["last"])[done].drop(RETRIEVAL, level="task", errors="ignore")
                rows.append({"figure": f"over last, without {RETRIEVAL}", **told, "tasks": len(rest), "value": rest.mean()})
    return rows


def recovered() -> list[dict[str, object]]:
    """The share of the gap between last and best layer that the shipped choice of a layer recovers, by set of models."""
    bare = bare_layers()
    depth = bare.groupby("model").layer.transform("max")
    has_norm = bare.model.map(bare.groupby("model").readout.agg(lambda words: "normed" in set(words)))
    usual = bare[(bare.readout == "raw") & ~((bare.layer == depth) & has_norm) | (bare.readout == "normed")]
    usual = usual[usual.model.isin(FAMILIES)].assign(family=usual.model.map(FAMILIES), score=usual.value)
    cases = cases_from_frames(usual)
    chosen = json.loads((HERE / "picks.json").read_text())["test"]["probes-2"]
    sets = {
        "all five": set(FAMILIES), "without smollm2-135m": set(FAMILIES) - {"smollm2-135m"},
        "smollm2-135m": {"smollm2-135m"}, "gemma3-270m": {"gemma3-270m"},
    }  # fmt: skip
    rows = [share_row(name, [c for c in cases if c.model in models], chosen) for name, models in sets.items()]
    return rows + label_rows()


def share_row(name: str, cases: list[Case], chosen: dict[str, int]) -> dict[str, object]:
    scores = np.array([case.score_at(chosen.get(case.model, case.depth)) for case in cases])
    told = figures(cases, scores, seed=0, draws=1000)
    return {
        "figure": "recovered", "models": name, "recipe": "layer alone", "tasks": len({case.task for case in cases}),
        "value": 100 * told["recovered"], "low": 100 * told["low_tasks"], "high": 100 * told["high_tasks"],
    }  # fmt: skip


def label_rows() -> list[dict[str, object]]:
    """The same share with 64 labels. The choices of single tasks were not kept: no interval without SmolLM2."""
    table = pd.read_csv(HERE / "test_labels.csv").set_index("family")
    rest = table.drop(["all", "SmolLM2"])[["chosen", "last", "best"]].mean()
    shares = {
        "all five": table.loc["all"], "without smollm2-135m": pd.Series(
            {"recovered": (rest.chosen - rest["last"]) / (rest.best - rest["last"])}
        ), "smollm2-135m": table.loc["SmolLM2"], "gemma3-270m": table.loc["Gemma3"],
    }  # fmt: skip
    return [
        {
            "figure": "recovered", "models": name, "recipe": "layer, 64 labels", "tasks": 21,
            "value": 100 * told.recovered, "low": 100 * told.get("low_tasks", np.nan),
            "high": 100 * told.get("high_tasks", np.nan),
        }
        for name, told in shares.items()
    ]  # fmt: skip


def table() -> pd.DataFrame:
    names = ["figure", "models", "fitted_on", "recipe", "tasks", "value", "low", "high"]
    return pd.DataFrame(gains(recipe_scores()) + recovered())[names].round(2)


if __name__ == "__main__":
    found = table()
    found.to_csv(HERE / "headline.csv", index=False)
    print(found.to_string(index=False))

"""The figures that README.md of this folder and docs/pick.md quote, computed from the committed tables alone.

    python studies/selection/headline.py

Reads test_ideas.csv, test_recipes.csv, ablation.csv, test_labels.csv, picks.json and ../eval/scores.csv; writes
headline.csv, and the ablation into README.md. Intervals are of 95 %, by drawing tasks again with
replacement; two decoders are too few to draw models.
`texts`: one map per model, fitted on 1,000 paragraphs of WikiText-2 train. `task`: transductive, one map for each task,
fitted on the unlabelled texts of its own test set.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from layerwise.verbs.pick.cases import Case, cases_from_frames

HERE = Path(__file__).parent
DECODERS = {"smollm2-135m": (28, "remove_top:8", 1), "gemma3-270m": (13, "remove_top:3", 16)}  # layer, map; layer alone
FAMILIES = {
    "smollm2-135m": "SmolLM2", "gemma3-270m": "Gemma3", "gte-small": "gte", "all-minilm-l6-v2": "MiniLM",
    "paraphrase-minilm-l3-v2": "MiniLM",
}  # fmt: skip
RETRIEVAL = ["WikiQARetrieval"]
# Tasks that share a topic with the bundled probes: assistant, banking, feelings, scenes, biology, software.
LIKE_THE_PROBES = [
    "MassiveIntentClassification", "MassiveScenarioClassification", "Banking77Classification", "EmotionClassification",
    "SICK-R", "BiomedicalTitlesClustering", "StackOverflowTitlesClustering",
]  # fmt: skip
DRAWS = 10_000
PAGES = [HERE / "README.md"]
# The whole test sets where they were scored, else at most 200 examples of each.
ABLATION = next((p for p in (HERE / "ablation.csv", HERE / "ablation_200.csv") if p.exists()), HERE / "ablation.csv")
CAPPED = (
    "" if ABLATION.name == "ablation.csv" else ", at most 200 examples per task, no classification and no retrieval"
)
START, END = "<!-- ablation: written by headline.py -->", "<!-- end of ablation -->"
NOT_SCORED = """The ablation "last layer + same map + static" is not scored yet (`studies/selection/ablation.py`).
What is known: the last layer of Gemma3-270M with the same map, without static, has 48.50 (`test_ideas.csv`), 1.7
above the last layer alone and 5.6 below layer 13 with that map."""
Row = dict[str, object]


def interval(difference: pd.Series) -> dict[str, float]:
    """The 95 % interval of a mean over tasks, by drawing tasks again."""
    drawn = np.random.default_rng(0).choice(difference.to_numpy(), (DRAWS, len(difference))).mean(axis=1)
    return dict(zip(("low", "high"), np.percentile(drawn, [2.5, 97.5]).tolist(), strict=True))


def bare_layers() -> pd.DataFrame:
    scores = pd.read_csv(HERE.parent / "eval" / "scores.csv").rename(columns={"readout": "norm"})  # its older name
    return scores[scores.tokens == "all"].assign(score=lambda frame: frame.value)


def recipe_scores(fitted_on: str) -> pd.DataFrame:
    """One row per decoder, recipe and task."""
    ideas, bare = pd.read_csv(HERE / "test_ideas.csv"), bare_layers()
    ideas = ideas[ideas.tokens == "all"]
    rows = []
    for model, (layer, word, alone) in DECODERS.items():
        own = ideas[ideas.model == model]
        named = {"static": (0, "whiten"), "chosen without static": (layer, word), "chosen": (layer, f"{word}+static")}
        rows.append(own[own.fitted_on == "-"].assign(recipe="last"))
        for name, (at, transform) in named.items():
            found = own[(own.fitted_on == fitted_on) & (own.layer == at) & (own["transform"] == transform)]
            rows.append(found.assign(recipe=name))
        if fitted_on == "texts":
            one = bare[(bare.model == model) & (bare.layer == alone) & (bare.norm == "raw")]
            rows.append(one.assign(recipe="layer alone"))
    return pd.concat(rows)[["model", "recipe", "task", "score"]]


def gains(scores: pd.DataFrame, labels: Row, bases: Iterable[str], without: Iterable[list[str]] = ()) -> list[Row]:
    """Each recipe's mean and its gain over other recipes, for each decoder and for both together."""
    grid = scores.pivot_table(index="task", columns=["model", "recipe"], values="score")
    rows: list[Row] = []
    for models in (*((model,) for model in DECODERS), tuple(DECODERS)):
        mean = {recipe: sum(grid[m, recipe] for m in models) / len(models) for recipe in dict.fromkeys(scores.recipe)}
        for recipe, here in mean.items():
            known = {**labels, "models": "+".join(models), "recipe": recipe, "tasks": len(here)}
            rows.append({**known, "figure": "mean", "value": here.mean()})
            for base in bases:
                if base != recipe and base in mean:
                    gain = here - mean[base]
                    rows.append({**known, "figure": f"over {base}", "value": gain.mean(), **interval(gain)})
            for left_out in without if recipe == "chosen" else ():
                gain = (here - mean["last"]).drop(left_out)
                what = f"over last, without {left_out[0] if len(left_out) == 1 else 'tasks like the probes'}"
                rows.append({**known, "figure": what, "tasks": len(gain), "value": gain.mean(), **interval(gain)})
    return rows


def recovered() -> list[Row]:
    """The share of the gap between last and best layer that the shipped choice of a layer recovers, by models."""
    bare = bare_layers()
    normed = set(bare[bare.norm == "normed"].model)  # their last layer is the normed one
    depth = bare.groupby("model").layer.transform("max")
    usual = bare[(bare.norm == "normed") | (bare.layer < depth) | ~bare.model.isin(normed)]
    usual = usual[usual.model.isin(FAMILIES)]
    cases = cases_from_frames(usual.assign(family=usual.model.map(FAMILIES)))
    sets = {
        "all five": set(FAMILIES), "without smollm2-135m": set(FAMILIES) - {"smollm2-135m"},
        "smollm2-135m": {"smollm2-135m"}, "gemma3-270m": {"gemma3-270m"},
    }  # fmt: skip
    picked = json.loads((HERE / "picks.json").read_text())["test"]["probes-2"]
    known = pd.read_csv(HERE / "test_recipes.csv").query("recipe == 'static' and fitted_on == 'texts'")
    static = known.set_index(["model", "task"]).score
    rows = []
    for name, models in sets.items():
        some = [case for case in cases if case.model in models]
        layers = [case.score_at(picked.get(case.model, case.depth)) for case in some]
        rows.append(share_row(name, "layer alone", some, layers))
        rows.append(share_row(name, "static", some, [static[case.model, case.task] for case in some]))
    return rows


def share_row(name: str, recipe: str, cases: list[Case], scores: list[float]) -> Row:
    """As `audit` computes it: means over models, then families; every model has the same tasks."""
    rows = [
        (case.task, case.family, case.model, score, case.last, case.best)
        for case, score in zip(cases, scores, strict=True)
    ]
    names = ["task", "family", "model", "chosen", "last", "best"]
    frame = pd.DataFrame(rows, columns=names).set_index(names[:3]).groupby(["task", "family"]).mean()
    chosen, last, best = frame.groupby("task").mean()[["chosen", "last", "best"]].to_numpy().T  # (tasks,) each
    rng = np.random.default_rng(0)
    drawn = np.stack([rng.choice(len(last), len(last)) for _ in range(1000)])  # (draws, tasks)
    shares = (chosen[drawn] - last[drawn]).mean(axis=1) / (best[drawn] - last[drawn]).mean(axis=1)
    low, high = np.percentile(shares, [2.5, 97.5])
    share = (chosen - last).mean() / (best - last).mean()
    labels = {"figure": "recovered", "models": name, "recipe": recipe, "tasks": len(last)}
    return labels | {"value": 100 * share, "low": 100 * low, "high": 100 * high}


def recovered_with_labels() -> list[Row]:
    """The same share with 64 labels. The choices of single tasks were not kept: no interval without SmolLM2."""
    table = pd.read_csv(HERE / "test_labels.csv").set_index("family")
    rest = table.drop(["all", "SmolLM2"])[["chosen", "last", "best"]].mean()
    share = pd.Series({"recovered": (rest.chosen - rest["last"]) / (rest.best - rest["last"])})
    sets = {"all five": "all", "smollm2-135m": "SmolLM2", "gemma3-270m": "Gemma3"}
    found = {name: table.loc[family] for name, family in sets.items()} | {"without smollm2-135m": share}
    names = {"value": "recovered", "low": "low_tasks", "high": "high_tasks"}
    return [
        {"figure": "recovered", "models": name, "recipe": "layer, 64 labels", "tasks": 21}
        | {key: 100 * row.get(column, np.nan) for key, column in names.items()}
        for name, row in found.items()
    ]


def table() -> pd.DataFrame:
    rows: list[Row] = []
    for fit in ("texts", "task"):
        rows += gains(recipe_scores(fit), {"fitted_on": fit}, ["last", "static"], [RETRIEVAL, LIKE_THE_PROBES])
    if ABLATION.exists():
        bases = ["last", "static", "last + same map + static"]
        rows += gains(pd.read_csv(ABLATION), {"fitted_on": "texts (ablation)"}, bases)
    names = ["figure", "models", "fitted_on", "recipe", "tasks", "value", "low", "high"]
    return pd.DataFrame(rows + recovered() + recovered_with_labels())[names].round(4)


def page_rows(found: pd.DataFrame, fitted_on: str, names: dict[str, str]) -> list[str]:
    """Lines of a table in Markdown: each recipe's mean and gain over the last layer, for both decoders."""
    some = found[found.fitted_on == fitted_on].set_index(["models", "recipe", "figure"])
    lines = []
    for recipe, name in names.items():
        cells = [name]
        for model in DECODERS:
            cells.append(f"{some.loc[(model, recipe, 'mean'), 'value']:.2f}")
            gain = None if recipe == "last" else some.loc[(model, recipe, "over last")]
            cells.append("" if gain is None else f"{gain.value:+.1f} ({gain.low:.1f} to {gain.high:.1f})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page_tables(found: pd.DataFrame) -> dict[str, list[str]]:
    """The tables of this study's README."""
    static = {"static": "token embeddings, whitened (layer 0)"}
    plain = {"last": "last layer", **static}
    shipped = {"chosen without static": "recipe, `--no-static`", "chosen": "**recipe (pick's default)**"}
    ablation = {f"last + same map{end}": f"last layer + same map{end}" for end in ("", " + static")}
    tables = {
        "texts": page_rows(found, "texts", plain | {"layer alone": "layer alone (`--layer-only`)"} | shipped),
        "task": page_rows(found, "task", plain | shipped),
    }
    if "texts (ablation)" in set(found.fitted_on):
        tables["ablation"] = page_rows(found, "texts (ablation)", plain | ablation | shipped)
    return tables


def ablation_block(found: pd.DataFrame) -> str:
    """The part of a page between the marks of the ablation."""
    lines = page_tables(found).get("ablation")
    if lines is None:
        return NOT_SCORED
    tasks = int(found[found.fitted_on == "texts (ablation)"].tasks.max())
    head = (
        f"What each part adds, on {tasks} of the 22 tasks (`{ABLATION.name}`; the same tasks for all recipes{CAPPED}):"
    )
    over = found[(found.figure == "over last + same map + static") & (found.recipe == "chosen")].set_index("models")
    alike = " and ".join(f"{over.value[m]:+.1f} ({over.low[m]:.1f} to {over.high[m]:.1f})" for m in DECODERS)
    said = (
        "Once token embeddings are added, the layer hardly matters: the difference between the recipe and the last "
        f"layer, if both have the same map and token embeddings, is {alike} points."
    )
    top = ["| | SmolLM2-135M | gain | Gemma3-270M | gain |", "|---|---|---|---|---|"]
    return "\n".join([head, "", *top, *lines, "", said])


def fill_pages(found: pd.DataFrame) -> None:
    """Writes the ablation into the pages that show it."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        before, start, rest = text.partition(START)
        _, end, after = rest.partition(END)
        page.write_text(f"{before}{start}\n{ablation_block(found)}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    found = table()
    found.to_csv(HERE / "headline.csv", index=False)
    fill_pages(found)
    print(found.to_string(index=False))
    for name, lines in page_tables(found).items():
        print("", name, *lines, sep="\n")

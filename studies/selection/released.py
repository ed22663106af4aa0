"""Audits rules on the released results of the paper: the scores and metrics of seven models of four families.

    python studies/selection/released.py SHARED_DATA/released OUT

Writes released.csv, one row per rule and family; pythia410m.csv, the means on Pythia-410M's 29 tasks; and table2.csv,
the Pythia-410M row of the paper's Table 2 on either set of tasks, read as the authors' loader does and in English only.
"""

import sys
from pathlib import Path

import pandas as pd
from rankers import audit_fitted, fit_ranker

from layerwise.verbs.lab.audit.regret import audit, audit_rows
from layerwise.verbs.pick.cases import Case, cases_from_frames
from layerwise.verbs.pick.rules import parse_rule

MODELS = {
    ("Pythia", "14m"): "Pythia", ("Pythia", "70m"): "Pythia",
    ("Pythia", "160m"): "Pythia", ("Pythia", "410m"): "Pythia",
    ("bert", "base"): "BERT", ("roberta_mean_pooling", "base"): "RoBERTa",
    ("LLM2Vec-mntp-unsup-simcse", "8B"): "LLM2Vec",
}  # fmt: skip
RULES = [
    "last", "second_to_last", "depth:50%", "depth:60%", "depth:70%", "depth:80%", "depth:90%", "min:dime", "max:dime",
    "min:infonce", "max:infonce", "min:entropy_dataset", "max:entropy_dataset", "min:lidar", "max:lidar",
    "min:curvature", "max:curvature", "min:entropy_prompt", "max:entropy_prompt", "min:dime@20%-90%",
    "max:infonce@20%-90%", "ranks:min:dime+max:infonce", "ranks:min:dime+min:entropy_dataset",
]  # fmt: skip
METRICS = ["dime", "infonce", "entropy_dataset", "lidar", "curvature", "entropy_prompt"]
# A labelled set that is the same for every user, and stands for tasks it is not part of.
PROXIES = [
    ["STSBenchmark"],
    ["STSBenchmark", "Banking77Classification"],
    ["STSBenchmark", "Banking77Classification", "StackExchangeClustering"],
    ["STSBenchmark", "Banking77Classification", "TwentyNewsgroupsClustering", "AskUbuntuDupQuestions"],
]


def read(folder: Path) -> list[Case]:
    scores, metrics = (pd.read_parquet(folder / f"{name}.parquet") for name in ("mteb_scores", "metrics"))
    scores = scores[(scores.split == "test") & scores.english_subset & (scores.revision == "main")]
    metrics = metrics[(metrics.revision == "main") & (metrics.normalisation == "raw")]
    found = []
    for frame in (scores, metrics):
        pairs = list(zip(frame.family, frame["size"], strict=True))
        frame = frame.assign(model=[" ".join(pair) for pair in pairs], kin=[MODELS.get(pair) for pair in pairs])
        found.append(frame[frame.kin.notna()])
    scores, metrics = found
    usual = scores[(scores.variant == "") | (scores.kin == "LLM2Vec")]  # LLM2Vec's last layer is a variant's
    usual = usual.rename(columns={"main_score": "score"}).assign(score=lambda f: 100 * f.score)
    known = set(metrics[metrics.task != ""].task)
    whole = usual[(usual.kin == "LLM2Vec") | usual.complete]
    kept = whole[whole.task.isin(known)]
    scored = kept.drop(columns="family").rename(columns={"kin": "family"})
    metrics = metrics[(metrics.split == "test") & (metrics.task != "")]
    return cases_from_frames(scored, metrics)


def proxy_scores(cases: list[Case], proxies: list[str]) -> pd.DataFrame:
    """The layer that is best on the proxies, for each task that is not among them."""
    of_model: dict[str, list[Case]] = {}
    for case in cases:
        of_model.setdefault(case.model, []).append(case)
    chosen = []
    for case in cases:
        others = [o for o in of_model[case.model] if o.task in proxies and o.task != case.task]
        sums = pd.DataFrame([o.scores for o in others]).mean(axis=0, skipna=False) if others else pd.Series(dtype=float)
        chosen.append(case.score_at(int(sums.idxmax())) if sums.notna().any() else case.last)
    return pd.DataFrame(audit_rows("best on " + "+".join(proxies), cases, pd.Series(chosen).to_numpy()))


def table2(folder: Path) -> pd.DataFrame:
    """Last layer, best single layer and the rules of Table 2 for Pythia-410M; the rules have metrics for 29 tasks.

    `first entry` is what the authors' loader reads (scores["test"][0]): for STS17, some language pair.
    """
    scores, metrics = (pd.read_parquet(folder / f"{name}.parquet") for name in ("mteb_scores", "metrics"))
    kept = "family == 'Pythia' and size == '410m' and revision == 'main' and split == 'test'"
    scores, metrics = scores.query(kept, engine="python"), metrics.query(kept, engine="python")
    metrics = metrics[(metrics.normalisation == "raw") & (metrics.task != "")]
    rows = []
    for reading, some in (("first entry", scores[scores.file_order == 0]), ("English", scores[scores.english_subset])):
        grid = 100 * some.pivot_table(index="task", columns="layer", values="main_score")
        for part in (grid, grid[grid.index.isin(metrics.task)]):
            found = {"last": part.iloc[:, -1].mean(), "best single layer": part.mean().max()}
            for name in ("dime", "infonce", "entropy_dataset") if len(part) < len(grid) else ():
                curves = metrics[metrics.metric == name].pivot_table(index="task", columns="layer", values="value")
                for word, layers in (("min", curves.idxmin(axis=1)), ("max", curves.idxmax(axis=1))):
                    found[f"{word}:{name}"] = sum(part.loc[task, k] for task, k in layers.items()) / len(layers)
            rows += [{"reading": reading, "tasks": len(part), "rule": r, "score": s} for r, s in found.items()]
    return pd.DataFrame(rows).round(2)


def main(folder: Path, out: Path) -> None:
    table2(folder).to_csv(out / "table2.csv", index=False)
    cases = read(folder)
    frames = [audit(cases, [parse_rule(word) for word in RULES])]
    frames.append(audit_fitted("ranker of all metrics", cases, lambda some: fit_ranker(some, METRICS).rule("ranker")))
    frames += [proxy_scores(cases, proxies) for proxies in PROXIES]
    table = pd.concat(frames)
    table.round(4).to_csv(out / "released.csv", index=False)
    pythia = [case for case in cases if case.model == "Pythia 410m"]
    rows = audit(pythia, [parse_rule(word) for word in RULES], draws=0)
    rows[["rule", "pairs", "chosen", "last", "best"]].round(2).to_csv(out / "pythia410m.csv", index=False)
    print(table[table.family == "all"].drop(columns="family").round(3).to_string(index=False))
    print(rows[["rule", "chosen"]].round(2).head(14).to_string(index=False))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

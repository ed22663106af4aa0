"""Audits layer rules and whole recipes on models that layerwise measured itself.

    python studies/selection/own.py development|test MODELS.json TEXTS.parquet ROOT OUT

MODELS.json lists {"name", "family", "path", "eval", "scan", "views", "max_length"}: the model, its evaluation of every
layer (tokens all), its scan, and perhaps another one of dime and infonce. TEXTS are the unlabelled texts that maps are
fitted on and probes look at (1,000 paragraphs of WikiText-2's training part). Only models of the named part of
split.json are read. Writes PART_probes.csv, PART_layers.csv, PART_recipes.csv.
"""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

import layerwise
from layerwise.models.opening import open_network
from layerwise.models.readouts import baseline_recipe
from layerwise.verbs.lab.audit.regret import audit, audit_rows
from layerwise.verbs.pick.candidates import (
    ProbeVectors,
    compute_probe_vectors,
    layer_candidates,
    score_candidates,
    with_second_vector,
)
from layerwise.verbs.pick.cases import Case, cases_from_runs
from layerwise.verbs.pick.decision import decide
from layerwise.verbs.pick.probes import proxy_probes
from layerwise.verbs.pick.rules import parse_rule
from layerwise.verbs.pick.run import default_rulebook

sys.path.insert(0, str(Path(__file__).parent.parent / "recipes"))
from tried_probes import user_text_probes  # noqa: E402

RULES = [
    "last", "second_to_last", "depth:25%", "depth:50%", "depth:80%", "min:dataset_entropy", "max:dataset_entropy",
    "min:prompt_entropy", "max:prompt_entropy", "min:curvature", "max:curvature", "max:effective_rank",
    "min:anisotropy", "max:intrinsic_dimension", "max:pairs", "max:paraphrase", "max:neighbours", "max:classifier",
    "max:halves",
    "max:views", "ranks:max:pairs+max:paraphrase", "ranks:max:pairs+max:paraphrase+max:neighbours+max:classifier",
    "ranks:max:halves+max:views", "min:dime", "max:dime", "min:infonce", "max:infonce",
]  # fmt: skip
TRANSFORMS = ("none", "center", "remove_top:1", "remove_top:3", "remove_top:8", "zscore", "whiten")


def probe_table(entry: dict, texts: list[str]) -> tuple[pd.DataFrame, ProbeVectors, list]:
    """Every probe of every layer and map."""
    network = open_network(entry["path"])
    probes = [*proxy_probes(), *user_text_probes(texts)]
    candidates = layer_candidates(network, transforms=TRANSFORMS)
    trial = compute_probe_vectors(network, candidates, probes, texts, max_length=entry["max_length"])
    scored = score_candidates(trial, candidates)
    rows = [
        {"model": entry["name"], "layer": s.recipe.layer, "norm": s.recipe.norm, "transform": s.recipe.transform}
        | {name: round(s.mean(name), 5) for name in s.unit_scores}
        for s in scored
    ]
    return pd.DataFrame(rows), trial, scored


def cases_of(entry: dict, probes: pd.DataFrame | None = None) -> list[Case]:
    """Tasks of the model, with the curves of its scan and of the probes on bare layers."""
    table = layerwise.LayerTable.load(entry["eval"])
    bare = layerwise.LayerTable(tuple(r for r in table if r.tokens == "all" and r.transform == "none"), table.run)
    scans = [layerwise.LayerTable.load(entry[name]) for name in ("scan", "views") if entry.get(name)]
    # Spectra of centred unit rows, where there are such; curvature, DiME and the like know rows only as they are.
    spectral = {r.metric for scan in scans for r in scan if r.rows != "raw"}
    usual = []
    for scan in scans:
        seen = (r for r in scan if r.tokens == "all" and (r.rows == "raw") != (r.metric in spectral))
        usual.append(layerwise.LayerTable(tuple(seen)))
    found = cases_from_runs([(entry["family"], bare, usual)])
    curves = {}
    if probes is not None:
        plain = probes[probes["transform"] == "none"]
        curves = {name: tuple(plain[name]) for name in plain.columns[4:]}
    return [replace(case, model=entry["name"], curves={**case.curves, **curves}) for case in found]


def recipe_rows(entry: dict, trial: ProbeVectors, scored: list, texts: list[str], root: Path, part: str) -> list[dict]:
    """The shipped rule's recipe against the last layer and the static baseline, on every task."""
    network, book = open_network(entry["path"]), default_rulebook()
    last, length = baseline_recipe(network), entry["max_length"]
    tried = [s for s in scored if s.recipe.transform in book.transforms]
    plain = decide(tried, last, book.weights, margin=book.margin).answer
    deployed = partial(with_second_vector, trial, static=network.family.first_hidden_state == 0)
    decision = decide(tried, last, book.weights, margin=book.margin, deployed=deployed)
    best, gain, alike = decision.answer, decision.gain, decision.layers_alike
    named = {"last": last, "static": layerwise.Recipe(0, transform="whiten"), "chosen": best.recipe}
    named["without static"] = plain.recipe
    recipes = [replace(recipe, max_length=length) for recipe in dict.fromkeys(named.values())]
    rows = []
    for fit in ("texts", "task"):
        table = layerwise.eval(
            network,
            entry.get("tasks", "all"),
            data_root=root,
            out=entry["eval"],
            recipes=recipes,
            max_length=length,
            fit=texts if fit == "texts" else "task",
        )
        for name, recipe in named.items():
            where = {"layer": recipe.layer, "norm": recipe.norm, "transform": recipe.transform}
            for row in table.where(**where):
                rows.append({
                    "model": entry["name"], "fitted_on": fit, "recipe": name, "layer": recipe.layer,
                    "norm": recipe.norm, "transform": recipe.transform, "task": row.metric,
                    "type": row.data.partition(":")[0], "score": round(row.value, 3),
                    "probe_gain": round(gain.mean, 2), "alike": " ".join(map(str, alike)),
                })  # fmt: skip
    return rows


def main(part: str, models: Path, texts_file: Path, root: Path, out: Path) -> None:
    entries = [entry for entry in json.loads(models.read_text()) if entry["part"] == part]
    texts = [example.text for example in layerwise.texts(texts_file)]
    probes, cases, recipes, picked = [], [], [], {}
    for entry in entries:
        frame, trial, scored = probe_table(entry, texts)
        probes.append(frame)
        cases += cases_of(entry, frame)
        bare = [s for s in scored if s.recipe.transform == "none"]
        book = default_rulebook()
        last = baseline_recipe(open_network(entry["path"]))
        chosen = decide(bare, last, book.weights, margin=book.margin).answer
        picked[entry["name"]] = chosen.recipe.layer
        recipes += recipe_rows(entry, trial, scored, texts, root, part)
        pd.concat(probes).to_csv(out / f"{part}_probes.csv", index=False)
        pd.DataFrame(recipes).to_csv(out / f"{part}_recipes.csv", index=False)
        print(entry["name"], "layer", picked[entry["name"]], recipes[-1], flush=True)
    shipped = audit_rows(book.name, cases, np.array([case.score_at(picked[case.model]) for case in cases]))
    table = pd.concat([audit(cases, [parse_rule(word) for word in RULES]), pd.DataFrame(shipped)])
    table.round(4).to_csv(out / f"{part}_layers.csv", index=False)
    print(table[table.family == "all"].drop(columns="family").round(3).to_string(index=False))
    frame = pd.DataFrame(recipes)
    print(frame.pivot_table(index=["fitted_on", "model"], columns="recipe", values="score").round(2))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:6]))

"""How much of the gap between the last layer and the best candidate do 64 labels recover?

    python studies/recipes/development.py encode MODEL DATA WIKITEXT FOLDER plain prompteol --test     # once per model
    python studies/recipes/few_labels.py DATA FOLDER OUT.csv MODEL...

For each test task with labels, every way of choosing takes one candidate per task; the labels are never among the
scored examples. Candidates are the layers as they are, and for a language model also the last token of each layer in
the template prompteol, with remove_top:8. `layers` chooses among the former only. The scores are the fast ones of
development.py. Ways: the bundled sentences alone; `pick` (they and the labels, by logistic regression or rank
agreement); the labels alone; H-score and LogME of the labels (classes only).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from development import Store, fit_and_map, load_tasks, score_tasks
from prepare import TEST, tables
from transferability import h_score, log_me

from layerwise.core.recipe import Recipe
from layerwise.verbs.pick.candidates import ScoredRecipe
from layerwise.verbs.pick.decision import decide
from layerwise.verbs.pick.labels import label_probe
from layerwise.verbs.pick.probes import proxy_probes
from layerwise.verbs.pick.run import LABELS_FOR_EQUAL_WEIGHT, default_rulebook

LANGUAGE_MODELS = ("smollm2-135m", "gemma3-270m", "stories15m", "stories260k")


def main() -> None:
    data, folder, out, *models = sys.argv[1:]
    rows = []
    for model in models:
        rows += study_model(Path(data), Path(folder), model)
        pd.DataFrame(rows).round(3).to_csv(out, index=False)
    frame = pd.DataFrame(rows)
    for pool, group in frame.groupby("pool"):
        for name, part in (("all", group), ("without smollm2-135m", group[group.model != "smollm2-135m"])):
            means = part.groupby("model")[[c for c in part.columns if c not in ("model", "pool", "task")]].mean().mean()
            gap = means.best - means["last"]
            shares = {way: round(100 * (means[way] - means["last"]) / gap, 1) for way in WAYS}
            print(pool, name, f"{part.model.nunique()} models, gap {gap:.2f}", shares)


WAYS = ("sentences", "pick", "labels", "h_score", "log_me")


def study_model(data: Path, folder: Path, model: str) -> list[dict[str, Any]]:
    store, tasks = Store(folder, model), load_tasks(data, TEST)
    candidates = dict(make_candidates(store, model))
    book = default_rulebook()
    probes = [probe for probe in proxy_probes() if book.weights.get(probe.name)]
    last = next(recipe for recipe in candidates if recipe.norm == "normed" or recipe.pooling == "shipped")
    found = []
    for name, (source, kind) in TEST.items():
        labels = tables(data, name, source, kind)[2]
        if labels is None:
            continue
        task = {name: tasks[name]}
        scores = {r: score_tasks(task, store.lookup(rows))[name][1] for r, rows in candidates.items()}
        probe = label_probe(labels)
        unit_scores = {
            r: {p.name: p.score(rows[[store.index[text] for text in p.texts]]) for p in (*probes, probe)}
            for r, rows in candidates.items()
        }
        for pool in ("layers", "all"):
            chosen = [r for r in candidates if pool == "all" or not r.template]
            if pool == "all" and model not in LANGUAGE_MODELS:
                continue
            scored = [ScoredRecipe(r, unit_scores[r]) for r in chosen]
            weights = {p.name: book.weights[p.name] for p in probes}
            both = weights | {probe.name: sum(weights.values()) * probe.units / LABELS_FOR_EQUAL_WEIGHT}
            row: dict[str, Any] = {"model": model, "pool": pool, "task": name, "last": scores[last]}
            row["best"] = max(scores[r] for r in chosen)
            row["sentences"] = scores[decide(scored, last, weights, margin=book.margin).answer.recipe]
            row["pick"] = scores[decide(scored, last, both, margin=book.margin).answer.recipe]
            row["labels"] = scores[max(chosen, key=lambda r: unit_scores[r][probe.name].mean())]
            for way, measure in (("h_score", lambda x, y: h_score(x, y, shrink=True)), ("log_me", log_me)):
                if "label" in labels:
                    at = [store.index[text] for text in labels.text]
                    row[way] = scores[max(chosen, key=lambda r: measure(candidates[r][at], np.array(labels.label)))]
                else:
                    row[way] = row["labels"]
            found.append(row)
            print(row, flush=True)
    return found


def make_candidates(store: Store, model: str) -> list[tuple[Recipe, Any]]:
    plain = store.layers("plain", "mean")
    depth = len(plain) - (2 if model in LANGUAGE_MODELS else 1)
    found = [(Recipe(layer), plain[layer].astype(np.float64)) for layer in range(depth)]
    found.append((Recipe(depth, "normed"), plain[-1].astype(np.float64)))
    if model in LANGUAGE_MODELS:
        last_token = store.layers("prompteol", "last")
        for layer in range(1, depth + 1):
            recipe = Recipe(layer, pooling="last", transform="remove_top:8", template="prompteol")
            found.append((recipe, fit_and_map(last_token[layer].astype(np.float64), store.fit, "remove_top:8")))
    return found


if __name__ == "__main__":
    main()

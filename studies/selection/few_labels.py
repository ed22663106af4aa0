"""Few labels: a few labelled examples of each task choose its layer; how much of the gap does that recover?

    python studies/selection/few_labels.py development|test MODELS.json ROOT OUT [SIZE...]

MODELS.json as in own.py. Labels come from a task's training part where it has one, else from its test set (they are
then among those that are scored; BIOSSES, with its hundred pairs, is left out for that). The frozen weights of the
label-free probes stay; labels weigh as in `layerwise pick --labels`. Writes PART_labels.csv.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from own import cases_of

from layerwise.inputs.source import hash_id
from layerwise.models.opening import open_network
from layerwise.models.readouts import baseline_recipe
from layerwise.verbs.eval.data_root import LocalTask, read_root
from layerwise.verbs.lab.audit.regret import audit_rows
from layerwise.verbs.pick.candidates import compute_probe_vectors, layer_candidates, score_candidates
from layerwise.verbs.pick.decision import decide
from layerwise.verbs.pick.labels import MIN_LABELS, label_probe
from layerwise.verbs.pick.probes import proxy_probes
from layerwise.verbs.pick.run import LABELS_FOR_EQUAL_WEIGHT, default_rulebook

LEFT_OUT = ("BIOSSES",)


def labelled(task: LocalTask, size: int) -> pd.DataFrame:
    """So many labelled examples of a task, in the form that `pick --labels` takes, by hashed content."""
    folder = Path(task.folder)
    if task.type in ("Reranking", "Retrieval"):
        return judged(folder, size)
    split = "train" if (folder / task.subset / "train.parquet").exists() else "test"
    table = pd.read_parquet(folder / task.subset / f"{split}.parquet")
    if task.type == "Clustering":
        table = pd.DataFrame({"text": np.concatenate(table.sentences), "label": np.concatenate(table.labels)})
    table = table.rename(columns={"sent1": "sentence1", "sent2": "sentence2", "labels": "score"})
    table = table.loc[sorted(table.index, key=lambda i: hash_id("\t".join(map(str, table.loc[i]))))]
    if "label" in table:
        return by_class(table[["text", "label"]].drop_duplicates("text"), size)
    return table[["sentence1", "sentence2", "score"]].head(size)


def by_class(table: pd.DataFrame, size: int) -> pd.DataFrame:
    """As many of each class, at least two: with more classes than half the size, only some classes are labelled."""
    each = max(2, size // table.label.nunique())
    some = table[table.groupby("label").cumcount() < each]
    enough = some.groupby("label").label.transform("size") == each
    return (
        some[enough]
        .sort_values("label", key=lambda c: c.map(lambda v: hash_id(str(v))), kind="stable")
        .head(size // each * each)
    )


def judged(folder: Path, size: int) -> pd.DataFrame:
    """Pairs of a query and a candidate, half of them relevant."""
    queries, corpus, relevant = (
        pd.read_parquet(folder / name / "test.parquet") for name in ("queries", "corpus", "default")
    )
    texts = dict(zip(corpus["_id"], corpus.text, strict=True))
    asked = dict(zip(queries["_id"], queries.text, strict=True))
    good = [(q, d) for q, d, s in relevant.itertuples(index=False) if s > 0]
    good = sorted(good, key=lambda pair: hash_id(" ".join(pair)))[: size // 2]
    ranked = folder / "top_ranked" / "test.parquet"  # the candidates of each query, where it has its own
    if ranked.exists():
        candidates = {row[0]: list(row[1]) for row in pd.read_parquet(ranked).itertuples(index=False)}
    else:
        candidates = {q: sorted(texts, key=lambda d: hash_id(q + d))[:4] for q, _ in good}  # noqa: B023
    known = {(q, d) for q, d, s in relevant.itertuples(index=False) if s > 0}
    wrong = {q: [d for d in sorted(found, key=hash_id) if (q, d) not in known] for q, found in candidates.items()}
    bad = [(q, wrong[q][i % len(wrong[q])]) for i, (q, _) in enumerate(good) if wrong[q]]
    rows = [(asked[q], texts[d], score) for score, pairs in ((1.0, good), (0.0, bad)) for q, d in pairs]
    return pd.DataFrame(rows, columns=["sentence1", "sentence2", "score"])


def chosen_layers(entry: dict, tasks: dict[str, LocalTask], sizes: tuple[int, ...]) -> dict[tuple[str, int], int]:
    """The layer of each task and number of labels, from one pass over all labelled texts."""
    network, book = open_network(entry["path"]), default_rulebook()
    probes = proxy_probes()
    counts: dict[tuple[str, int], tuple[str, int]] = {}
    for name, task in tasks.items():
        for size in sizes:
            table = labelled(task, size)
            if len(table) >= MIN_LABELS:
                probe = replace(label_probe(table), name=f"labels:{name}:{size}")
                probes.append(probe)
                counts[name, size] = probe.name, len(table)
    candidates = layer_candidates(network)
    trial = compute_probe_vectors(network, candidates, probes, [], max_length=entry["max_length"])
    scored = score_candidates(trial, candidates)
    last, found = baseline_recipe(network), {}
    for at, (probe_name, count) in counts.items():
        weights = dict(book.weights) | {probe_name: sum(book.weights.values()) * count / LABELS_FOR_EQUAL_WEIGHT}
        best = decide(scored, last, weights, margin=book.margin).answer
        found[at] = best.recipe.layer
    return found


def main(part: str, models: Path, root: Path, out: Path, *sizes: int) -> None:
    entries = [entry for entry in json.loads(models.read_text()) if entry["part"] == part]
    tasks = {name: task for name, task in read_root(root).items() if name not in LEFT_OUT}
    cases, layers = [], {}
    for entry in entries:
        for at, layer in chosen_layers(entry, tasks, sizes).items():
            layers[entry["name"], *at] = layer
        cases += [case for case in cases_of(entry) if case.task in tasks]
        print(entry["name"], {at[1:]: layer for at, layer in layers.items() if at[0] == entry["name"]}, flush=True)
    rows = []
    for size in sizes:
        chosen = [case.score_at(layers.get((case.model, case.task, size), case.depth)) for case in cases]
        rows += audit_rows(f"{size} labels", cases, np.array(chosen))
    table = pd.DataFrame(rows)
    table.round(4).to_csv(out / f"{part}_labels.csv", index=False)
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:5]), *(int(size) for size in sys.argv[5:] or [64]))

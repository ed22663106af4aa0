"""What each part of the shipped recipe adds: the layer, the map, and the token embeddings beside it.

    python studies/selection/ablation.py MODELS WIKITEXT_TRAIN.parquet ROOT RUNS OUT.csv [TYPE...]

MODELS is the folder of prepared models, ROOT the data root of studies/eval/prepare.py, RUNS where evaluations are kept:
run the command again to go on. One map per model, fitted on 1,000 paragraphs of WikiText-2 train. The tasks with the
least text come first, and both models are scored on one task before the next begins, so that an unfinished table
still compares all recipes on the same tasks; TYPE, such as STS, leaves only tasks of these types. All 22 whole tasks
take about an hour of a core for each model. The layers and maps are those of probes-3 (chosen.csv, with +static).

ablation_whole.csv has the three whole tasks that were scored first: recipes that the study had scored before have the
same scores there. ablation_200.csv was made with a ROOT of `studies/eval/prepare.py DATA ROOT --cap 200 --cap-all` and
the types STS, PairClassification and Clustering.
"""

import sys
from pathlib import Path

import pandas as pd

import layerwise
from layerwise.models.opening import open_network
from layerwise.verbs.eval.data_root import LocalTask, read_root

MAX_LENGTH = 256
MODELS = {"smollm2-135m": (28, 30, "remove_top:8"), "gemma3-270m": (13, 18, "remove_top:3")}  # chosen, last, map


def recipes_of(chosen: int, last: int, transform: str) -> dict[str, layerwise.Recipe]:
    """The shipped recipe, the two baselines, and the recipe with one part changed or left out."""
    made = {
        "last": (last, "normed", "none"),
        "static": (0, "raw", "whiten"),
        "chosen": (chosen, "raw", f"{transform}+static"),
        "chosen without static": (chosen, "raw", transform),
        "last + same map": (last, "normed", transform),
        "last + same map + static": (last, "normed", f"{transform}+static"),
    }
    return {
        name: layerwise.Recipe(layer, norm, transform=word, max_length=MAX_LENGTH)
        for name, (layer, norm, word) in made.items()
    }


def amount_of_text(task: LocalTask) -> int:
    """The characters of a task's different test texts: the cost of one pass over it, about."""
    return sum(map(len, set(task.texts("test"))))


def main(models: Path, texts_file: Path, root: Path, runs: Path, out: Path, types: list[str]) -> None:
    texts = [example.text for example in layerwise.texts(texts_file, only="wikitext", sample=1000)]
    networks = {name: open_network(str(models / name)) for name in MODELS}
    rows: list[dict[str, object]] = []
    tasks = [task for task in read_root(root).values() if not types or task.type in types]
    for task in sorted(tasks, key=amount_of_text):
        for model, network in networks.items():
            recipes = recipes_of(*MODELS[model])
            table = layerwise.eval(
                network, task.name, data_root=root, out=runs / model, recipes=list(recipes.values()), fit=texts,
                max_length=MAX_LENGTH, threads=1,
            )  # fmt: skip
            for name, recipe in recipes.items():
                asked = {"layer": recipe.layer, "norm": recipe.norm, "transform": recipe.transform}
                (row,) = [r for r in table.where(**asked) if r.metric == task.name]
                score = {"task": task.name, "type": task.type, "score": round(row.value, 3)}
                rows.append({"model": model, "recipe": name} | asked | score)
        pd.DataFrame(rows).to_csv(out, index=False)
        print(task.name, "done", flush=True)
    print(pd.DataFrame(rows).pivot_table(index="recipe", columns="model", values="score").round(2))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:6]), types=sys.argv[6:])

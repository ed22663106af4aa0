"""Which texts should a map be fitted on? The recipe of `pick` on seven development tasks, with maps from other texts.

    python studies/recipes/fit_texts.py encode MODEL BUNDLED_FOLDER
    python studies/recipes/fit_texts.py score DATA FOLDER BUNDLED_FOLDER OUT.csv

`encode` writes vectors of the demo texts and their sentences. FOLDER holds the vectors of `development.py encode
--quick` of SmolLM2-135M and Gemma3-270M. The recipe: the last token and the mean of the chosen layer in the template
prompteol, remove_top:8 for both. Texts: first sentences of 1,000 (200) paragraphs of WikiText-2, the demo texts, these
and their sentences (the default of `pick`), the sentences of the probes, the unlabelled texts of the task itself, or
500 of these and 500 of WikiText-2.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from development import DEVELOPMENT, Store, encode_list, fit_and_map, load_tasks, quick_tasks, score_tasks, task_texts

from layerwise.inputs.text import demo_sentences, demo_texts
from layerwise.verbs.pick.probes import proxy_probes

LAYERS = {"smollm2-135m": 28, "gemma3-270m": 18}


def main() -> None:
    command, *words = sys.argv[1:]
    if command == "encode":
        model, demo_folder = words
        encode_list(model, Path(demo_folder), ["prompteol"], "bfloat16", demo_sentences(), demo_texts())
    else:
        score(*map(Path, words))


def score(data: Path, folder: Path, demo_folder: Path, out: Path) -> None:
    rows = []
    for model, layer in LAYERS.items():
        store, demo = Store(folder, model), Store(demo_folder, model)
        parts = [
            np.concatenate([vectors.layers("prompteol", pooling)[layer] for vectors in (store, demo)]).astype(
                np.float64
            )
            for pooling in ("last", "mean")
        ]
        for task, (_, kind) in quick_tasks().items():
            loaded = load_tasks(data, {task: DEVELOPMENT[task]})
            for name, fit in fitting_texts_of(store, demo, data, task).items():
                for dims in (0, 256):
                    vectors = store.lookup(mapped(parts, fit, dims))
                    row = {"model": model, "texts": name, "dims": dims, "task": task, "type": kind}
                    rows.append(row | {"score": score_tasks(loaded, vectors)[task][1]})
        pd.DataFrame(rows).round(2).to_csv(out, index=False)
    print(pd.DataFrame(rows).pivot_table(index=["model", "texts", "dims"], columns="type", values="score").round(1))


def fitting_texts_of(store: Store, demo: Store, data: Path, task: str) -> dict[str, list[int]]:
    """Places of the texts that a map is fitted on, by name."""
    rng = np.random.default_rng(0)
    bundled = [store.index[t] for t in dict.fromkeys(text for probe in proxy_probes() for text in probe.texts)]
    own = [store.index[t] for t in dict.fromkeys(task_texts(data, {task: DEVELOPMENT[task]}))]
    some, few = (list(rng.permutation(store.fit)[:count]) for count in (500, 200))
    mixed = list(rng.permutation(own)[:500]) + some
    texts = [len(store.index) + place for place in demo.fit]
    sentences = [len(store.index) + place for place in demo.index.values()]
    return {"WikiText-2": store.fit, "200 of WikiText-2": few, "demo": texts, "demo sentences": sentences,
            "bundled": bundled, "own": own, "half own": mixed}  # fmt: skip


def mapped(parts: list[Any], fit: list[int], dims: int) -> Any:
    found = []
    for rows in parts:
        rows = fit_and_map(rows, fit, "remove_top:8")
        found.append(rows / np.sqrt((rows[fit] ** 2).sum(axis=1).mean()))
    joined = np.concatenate(found, axis=1)
    return fit_and_map(joined, fit, f"pca:{dims}") if dims else joined


if __name__ == "__main__":
    main()

"""Maps fitted on texts of the same kind: up to 1,000 texts of a task's training split, without their labels.

    python studies/recipes/own_texts.py DATA ROOT MODELS OUT_FOLDER OUT.csv MODEL...

For each test task that has a training split, scores the recipes `static` and `chosen` of protocol.json again, with maps
fitted on its training texts instead of WikiText-2. None of these texts is scored.
"""

import sys
from pathlib import Path

import pandas as pd
from prepare import TEST, by_hash

import layerwise
from layerwise.downstream.data_root import read_root
from layerwise.selection.protocol import STATIC_RECIPE, read_protocol

HERE = Path(__file__).parent


def main() -> None:
    data, root, models, folder, out, *names = sys.argv[1:]
    protocol = read_protocol(HERE / "protocol.json")
    tasks, rows = read_root(Path(root) / "test"), []
    for model in names:
        chosen = protocol.recipes[model]["chosen"]
        for task, (source, kind) in TEST.items():
            train = Path(data) / source / "train.parquet"
            if kind not in ("Classification", "Clustering") or not train.exists():
                continue
            texts = by_hash(pd.read_parquet(train).drop_duplicates("text"), ["text"]).text
            scored = set(tasks[task].texts("test"))
            fit = [text for text in texts if text not in scored][:1000]
            table = layerwise.evaluate(
                f"{models}/{model}", [task], out=f"{folder}/{model}-{task}", data_root=f"{root}/test",
                recipes=[STATIC_RECIPE, chosen], fit=fit, max_length=256,
            )  # fmt: skip
            for row in table:
                label = "static" if row.layer == 0 else "chosen"
                score = round(row.value, 2)
                rows.append({"model": model, "task": task, "recipe": label, "texts": len(fit), "score": score})
                print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(out, index=False)


if __name__ == "__main__":
    main()

"""Maps fitted on texts of the same kind: up to 1,000 texts of a task's training split, without their labels.

    python studies/recipes/own_texts.py DATA ROOT MODELS WIKITEXT_TRAIN OUT_FOLDER OUT.csv MODEL...

For each test task that has a training split, scores the recipes `static` and `chosen` of protocol.json with maps fitted
on its training texts, and with maps fitted on 1,000 paragraphs of WikiText-2. Both in bfloat16, so that the two can be
compared with each other; test.csv is in float32. None of the texts for fitting is scored.
"""

import sys
from pathlib import Path

import pandas as pd
from prepare import TEST, by_hash

import layerwise
from layerwise.verbs.eval.data_root import read_root
from layerwise.verbs.lab.audit.protocol import STATIC_RECIPE, read_protocol

HERE = Path(__file__).parent
OWN_TEXTS = 1000


def main() -> None:
    data, root, models, wikitext, folder, out, *names = sys.argv[1:]
    protocol = read_protocol(HERE / "protocol.json")
    paragraphs = [example.text for example in layerwise.texts(wikitext, only="wikitext", sample=1000)]
    rows = []
    for model in names:
        recipes = {"static": STATIC_RECIPE, "chosen": protocol.recipes[model]["chosen"]}
        fits = {task: texts for task in TEST if (texts := training_texts(Path(data), Path(root), task))}
        calls = [("own texts", [task], own) for task, own in fits.items()] + [("WikiText-2", [*fits], paragraphs)]
        for source, tasks, fit in calls:
            table = layerwise.eval(
                layerwise.ModelSpec(f"{models}/{model}", dtype="bfloat16"), tasks, max_length=256,
                out=f"{folder}/{model}-{source[:3]}-{len(tasks)}-{tasks[0]}", data_root=f"{root}/test",
                recipes=list(recipes.values()), fit=fit,
            )  # fmt: skip
            for row in table:
                label = "static" if row.layer == 0 else "chosen"
                found = {"model": model, "task": row.metric, "recipe": label, "map from": source}
                rows.append(found | {"texts": len(fit), "score": round(row.value, 2)})
                print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(out, index=False)


def training_texts(data: Path, root: Path, task: str) -> list[str]:
    """Texts of a task's training split that are not scored; none if it has no such split."""
    source, kind = TEST[task]
    train = data / source / "train.parquet"
    if kind not in ("Classification", "Clustering") or not train.exists():
        return []
    texts = by_hash(pd.read_parquet(train).drop_duplicates("text"), ["text"]).text
    scored = set(read_root(root / "test")[task].texts("test"))
    return [text for text in texts if text not in scored][:OWN_TEXTS]


if __name__ == "__main__":
    main()

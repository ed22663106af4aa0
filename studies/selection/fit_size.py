"""How many unlabelled texts a map needs: the chosen recipe of a model, its map fitted on ever more texts.

    python studies/selection/fit_size.py MODELS.json TEXTS.parquet ROOT RECIPES.csv OUT [SIZE...]

RECIPES.csv (chosen.csv for probes-2; with +static for probes-3) tells each model's chosen recipe, which is left as it
is. Writes fit_size.csv.
"""

import json
import sys
from pathlib import Path

import pandas as pd

import layerwise
from layerwise.inputs.source import hash_id


def main(models: Path, texts_file: Path, root: Path, recipes: Path, out: Path, *sizes: int) -> None:
    texts = sorted((example.text for example in layerwise.texts(texts_file)), key=hash_id)
    table = pd.read_csv(recipes).rename(columns={"readout": "norm"})  # its older name
    chosen = table.query("recipe == 'chosen'").drop_duplicates("model").set_index("model")
    rows = []
    for entry in json.loads(models.read_text()):
        row = chosen.loc[entry["name"]]
        if row["transform"] == "none":
            continue
        length = entry["max_length"]
        recipe = layerwise.Recipe(int(row.layer), row.norm, transform=row["transform"], max_length=length)
        for size in sizes:
            table = layerwise.eval(
                entry["path"], "all", data_root=root, out=entry["eval"], recipes=recipe, max_length=length,
                fit=texts[:size],
            )  # fmt: skip
            told_recipe = {"model": entry["name"], "recipe": f"{recipe.layer} {recipe.transform}"}
            rows += [told_recipe | {"texts": size, "task": row.metric, "score": row.value} for row in table]
            pd.DataFrame(rows).round(3).to_csv(out / "fit_size.csv", index=False)
    print(pd.DataFrame(rows).pivot_table(index="texts", columns="model", values="score").round(2))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:6]), *(int(size) for size in sys.argv[6:] or [10, 30, 100, 300]))

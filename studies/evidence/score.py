"""Scores of every layer on the protocol's tasks, from the vectors of encode.py.

    python studies/evidence/score.py SHARED_DATA VECTORS MODEL [MODEL ...]

MODEL is the name of a folder in VECTORS. scores.csv gets one row per form (input, pooling, map), layer and task; a form
that is there already is not scored again. The layer `normed` is the last one after the final norm.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from encode import HALVES, TASKS, task_tables
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
from development import SCORES, fit_and_map, scaled_lookup  # noqa: E402
from prepare import TEST  # noqa: E402

TABLE = Path(__file__).parent / "scores.csv"
FORMS = (
    ("plain", "mean"), ("plain", "last"), ("prompteol", "mean"), ("prompteol", "last"), ("echo", "mean"),
)  # fmt: skip
MAPS = ("none", "remove_top:8")
WHITENED = ("plain", "mean", "whiten", "0")  # a baseline: token embeddings


class Vectors:
    """Those of one model, by input and pooling."""

    def __init__(self, folder: Path) -> None:
        known = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        self.folder = folder
        self.place = {text: place for place, text in enumerate(known["texts"])}
        self.fit = [self.place[text] for text in known["fit"]]

    def layers(self, name: str, pooling: str) -> Any | None:
        """(layers, texts, width); None while a piece is missing."""
        paths = sorted(
            self.folder.glob(f"{name}-{pooling}-*.npy"), key=lambda path: int(path.stem.rpartition("-")[2])
        )  # fmt: skip
        pieces = [np.load(path, mmap_mode="r") for path in paths]
        whole = sum(piece.shape[1] for piece in pieces) == len(self.place)
        return np.concatenate(pieces, axis=1) if whole else None


def layer_names(count: int, normed: bool) -> list[str]:
    return [*map(str, range(count - normed)), *(["normed"] if normed else [])]


def rows_of(model: str, vectors: Vectors, form: tuple[str, str, str], tasks: Any) -> Iterator[dict[str, Any]]:
    """One row per layer and task."""
    name, pooling, map_name = form
    layers = vectors.layers(name, pooling)
    if layers is None:
        return
    normed = json.loads((vectors.folder / "model.json").read_text(encoding="utf-8"))["normed"]
    for layer, raw in zip(layer_names(len(layers), normed), layers, strict=True):
        # The last token of layer 0 is a full stop, or the end of the template, for nearly every text.
        if (pooling == "last" and layer == "0") or (map_name == "whiten" and layer != WHITENED[-1]):
            continue
        mapped = scaled_lookup(fit_and_map(raw.astype(np.float64), vectors.fit, map_name), vectors.fit, vectors.place)
        for task, (kind, test, train) in tasks.items():
            half = next(half for half, names in HALVES.items() if task in names)
            yield {
                "model": model, "input": name, "pooling": pooling, "map": map_name, "layer": layer, "task": task,
                "type": kind, "half": half, "score": round(100 * SCORES[kind](task, test, train, mapped), 3),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "vectors"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # mteb stops logistic regression after 100 steps as well
    tasks = {name: (TEST[name][1], *task_tables(args.data, name)) for name in TASKS}
    for model in args.models:
        vectors = Vectors(args.vectors / model)
        for form in [(*form, map_name) for form in FORMS for map_name in MAPS] + [WHITENED[:3]]:
            known = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame(columns=["model", "input", "pooling", "map"])
            if ((known.model == model) & (known[["input", "pooling", "map"]] == form).all(axis=1)).any():
                continue
            rows = pd.DataFrame(rows_of(model, vectors, form, tasks))
            if len(rows):
                rows.to_csv(TABLE, mode="a", header=not TABLE.exists(), index=False)
                print(model, *form, f"{rows.groupby('layer').score.mean().max():.1f} at best", flush=True)


if __name__ == "__main__":
    main()

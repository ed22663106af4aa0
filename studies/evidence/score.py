"""Scores of every layer on the protocol's tasks, and of what `pick` recommends, from the vectors of encode.py.

    python studies/evidence/score.py SHARED_DATA VECTORS NAME [NAME ...] [--out FOLDER]

NAME is the name of a folder in VECTORS. scores.csv gets one row per form (input, pooling, map), layer and task; a form
that is there already is not scored again. The layer `normed` is the last one after the final norm. Rows with the input
`pick` score what the rule of `pick` recommends; recipes.csv says what that is. metrics.csv gets the metrics that
encode.py measured. Tables are those beside this file, or in FOLDER.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from encode import HALVES, TASKS, task_tables
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from layerwise.core.recipe import Readout, Recipe
from layerwise.core.templates import canonical_template
from layerwise.maps.linear import combine_maps
from layerwise.verbs.pick.candidates import ProbeVectors, score_candidates, with_second_vector
from layerwise.verbs.pick.decision import decide
from layerwise.verbs.pick.run import default_rulebook, weighted_probes

sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
from development import SCORES, fit_and_map, scaled_lookup  # noqa: E402
from prepare import TEST  # noqa: E402

KEYS = ["model", "dtype", "input", "pooling", "map"]
FORMS = (
    ("plain", "mean"), ("plain", "last"), ("prompteol", "mean"), ("prompteol", "last"), ("echo", "mean"),
)  # fmt: skip
MAPS = ("none", "remove_top:8")
WHITENED = ("plain", "mean", "whiten", "0")  # a baseline: token embeddings
METRICS = ["model", "dtype", "metric", "tokens", "layer", "value"]


class Vectors:
    """Those of one model, by input and pooling."""

    def __init__(self, folder: Path) -> None:
        self.about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        self.names = {name: self.about[name] for name in ("model", "dtype")}
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

    def layer_names(self) -> list[str]:
        return [*map(str, range(self.about["depth"] + 1)), *(["normed"] if self.about["normed"] else [])]

    def by_readout(self) -> dict[str, dict[Readout, Tensor]]:
        """What `pick` reads, by template."""
        found: dict[str, dict[Readout, Tensor]] = {}
        for template, name in (("", "plain"), (canonical_template("prompteol"), "prompteol")):
            for pooling in ("mean", "last"):
                for layer, rows in zip(self.layer_names(), self.layers(name, pooling), strict=True):
                    norm = ("raw", int(layer)) if layer != "normed" else ("normed", self.about["depth"])
                    found.setdefault(template, {})[Readout(norm[1], norm[0], "all", pooling)] = torch.from_numpy(rows)
        return found


def layer_rows(vectors: Vectors, form: tuple[str, str, str], tasks: Any) -> Iterator[dict[str, Any]]:
    """One row per layer and task."""
    name, pooling, map_name = form
    layers = vectors.layers(name, pooling)
    if layers is None:
        return
    for layer, raw in zip(vectors.layer_names(), layers, strict=True):
        # The last token of layer 0 is a full stop, or the end of the template, for nearly every text.
        if (pooling == "last" and layer == "0") or (map_name == "whiten" and layer != WHITENED[-1]):
            continue
        mapped = fit_and_map(raw.astype(np.float64), vectors.fit, map_name)
        yield from task_rows(vectors, (*form, layer), mapped, tasks)


def task_rows(vectors: Vectors, form: tuple[str, ...], mapped: Any, tasks: Any) -> Iterator[dict[str, Any]]:
    """One row per task."""
    lookup = scaled_lookup(mapped, vectors.fit, vectors.place)
    for task, (kind, test, train) in tasks.items():
        half = next(half for half, names in HALVES.items() if task in names)
        yield {
            **vectors.names, **dict(zip(("input", "pooling", "map", "layer"), form, strict=True)), "task": task,
            "type": kind, "half": half, "score": round(100 * SCORES[kind](task, test, train, lookup), 3),
        }  # fmt: skip


def recommended(vectors: Vectors) -> tuple[Recipe, Any] | None:
    """What the rule of `pick` recommends with maps of the protocol's sentences, and the vectors of all texts; None
    while one of its inputs is missing, or if the model ships its own vectors."""
    candidates = [Recipe.from_json(text) for text in vectors.about["candidates"]]
    if not candidates or any(vectors.layers(*form) is None for form in FORMS[:4]):
        return None
    book, texts = default_rulebook(), [*vectors.place]
    probes, weights = weighted_probes(None, book)
    fit = [texts[place] for place in vectors.fit]
    whole = ProbeVectors(probes, fit, vectors.place, vectors.by_readout())
    # Probes and maps need few of the texts.
    few = list(dict.fromkeys([*(text for probe in probes for text in probe.texts), *fit]))
    rows = torch.tensor([vectors.place[text] for text in few])
    part = {of: {readout: one[rows] for readout, one in found.items()} for of, found in whole.vectors.items()}
    trial = ProbeVectors(probes, fit, {text: row for row, text in enumerate(few)}, part)
    decision = decide(
        score_candidates(trial, candidates), Recipe.from_json(vectors.about["last"]), weights, margin=book.margin,
        deployed=partial(with_second_vector, trial, static=vectors.about["static"]),
    )  # fmt: skip
    recipe = decision.answer.recipe
    vectors_of_all = whole.rows(recipe.template, tuple(readout for readout, _ in recipe.parts))
    return recipe, (
        vectors_of_all if recipe.transform == "none" else combine_maps(whole.maps(recipe))(vectors_of_all)
    ).numpy()


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"layer": str}) if path.exists() else pd.DataFrame(columns=KEYS)


def add(path: Path, rows: pd.DataFrame) -> None:
    rows.to_csv(path, mode="a", header=not path.exists(), index=False)


def add_once(path: Path, rows: pd.DataFrame) -> None:
    """Rows of one model, in the place of those that it had."""
    known = read(path)
    mine = (known[["model", "dtype"]] == rows[["model", "dtype"]].iloc[0]).all(axis=1)
    pd.concat([known[~mine][rows.columns] if len(known) else rows[:0], rows]).to_csv(path, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "vectors"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", nargs="+", metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # mteb stops logistic regression after 100 steps as well
    tasks = {name: (TEST[name][1], *task_tables(args.data, name)) for name in TASKS}
    for model in args.models:
        vectors = Vectors(args.vectors / model)
        table = args.out / "scores.csv"
        add_once(args.out / "metrics.csv", pd.read_csv(vectors.folder / "metrics.csv").assign(**vectors.names)[METRICS])
        for form in [(*form, map_name) for form in FORMS for map_name in MAPS] + [WHITENED[:3]]:
            known = read(table)
            if (known[KEYS] == [*vectors.names.values(), *form]).all(axis=1).any():
                continue
            rows = pd.DataFrame(layer_rows(vectors, form, tasks))
            if len(rows):
                add(table, rows)
                print(model, *form, f"{rows.groupby('layer').score.mean().max():.1f} at best", flush=True)
        known = read(table)
        done = (known[KEYS[:3]] == [*vectors.names.values(), "pick"]).all(axis=1).any()
        if not done and (picked := recommended(vectors)) is not None:
            recipe, mapped = picked
            layer = "normed" if recipe.norm == "normed" else str(recipe.layer)
            form = ("pick", recipe.pooling, recipe.transform, layer)
            add(table, pd.DataFrame(task_rows(vectors, form, mapped, tasks)))
            add_once(args.out / "recipes.csv", pd.DataFrame([vectors.names | {"recipe": recipe.to_json()}]))
            print(model, "pick recommends", recipe.to_json(), flush=True)


if __name__ == "__main__":
    main()

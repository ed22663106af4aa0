"""Scores ways to make a vector that are not recipes of layerwise, from the vectors that an evaluation has stored.

    python studies/selection/more_ideas.py MODEL.json TEXTS.parquet ROOT OUT.csv texts|task IDEA...

MODEL.json is one entry of MODELS.json (own.py). Maps are fitted on TEXTS, or on each task's own texts. An IDEA is
  length:K:MAP   layer K with MAP, as long as a whitened vector is
  sum:K          layer 0 counted twice and layer K, each over its median principal deviation, added and whitened
  stack:K        layers 0 to K, each whitened, side by side
  rare:A         layer 0 with tokens counted by A / (A + frequency), whitened
"""

import json
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

import layerwise
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Readout, Recipe
from layerwise.maps.linear import concatenate_maps, fit_map, fit_maps
from layerwise.metrics.accumulators.second_moment import moments_of_rows
from layerwise.models.opening import open_network
from layerwise.verbs.eval.encoder import make_encoder
from layerwise.verbs.eval.scoring import columns_as_lists, content_cache, load_task
from layerwise.verbs.eval.tasks import choose_tasks, task_texts
from layerwise.verbs.eval.vectors import VectorStore, find_kinds

Rows = Callable[[list[str]], Tensor]  # texts -> (N, D)


class Model:
    """The stored vectors of a model, and its token embeddings for what is not stored."""

    def __init__(self, entry: dict) -> None:
        self.entry, out = entry, Path(entry["eval"])
        kind = max(find_kinds(out), key=lambda kind: len(kind.readouts))
        roots = [path.parent.parent for path in out.glob("*/vectors/*/kind.json")]
        self.store = next(s for s in (VectorStore(root, kind, None, verify=False) for root in roots) if s.index)
        self.folder = self.store.root.parent

    @cached_property
    def network(self) -> layerwise.models.network.Network:
        return open_network(self.entry["path"])

    def layer(self, number: int) -> Rows:
        return lambda texts: torch.from_numpy(self.store.vectors(texts, Readout(number))).double()

    def rare(self, a: float, fit: list[str]) -> Rows:
        table = self.network.module.get_input_embeddings().weight.detach().double()

        def ids(texts: list[str]) -> list[Tensor]:
            found = self.network.tokenizer(list(texts), truncation=True, max_length=self.entry["max_length"])
            return [torch.tensor(i or [self.network.tokenizer.pad_token_id]) for i in found["input_ids"]]

        seen = torch.bincount(torch.cat(ids(fit)), minlength=len(table)).double()
        weight = a / (a + seen / seen.sum())
        return lambda texts: torch.stack([weight[i] @ table[i] / weight[i].sum() for i in ids(texts)])


def fitted(rows: Rows, word: str, fit: list[str]) -> Rows:
    found = fit_map(word, *moments_of_rows(rows(fit)))
    return lambda texts: found(rows(texts))


def idea_rows(model: Model, idea: str, fit: list[str]) -> Rows:
    name, *options = idea.split(":")
    if name == "rare":
        return fitted(model.rare(float(options[0]), fit), "whiten", fit)
    layer = int(options[0])
    if name == "length":
        rows = fitted(model.layer(layer), ":".join(options[1:]), fit)
        known = rows(fit)
        return lambda texts: rows(texts) * (known.shape[1] / known.square().sum(dim=1).mean()).sqrt()
    if name == "stack":
        parts = [model.layer(number) for number in range(layer + 1)]
        linear = concatenate_maps(fit_maps([("whiten", moments_of_rows(rows(fit))) for rows in parts]))
        return lambda texts: linear(torch.cat([rows(texts) for rows in parts], dim=1))
    if name == "sum":

        def scale(rows: Rows) -> float:
            count, _, scatter = moments_of_rows(rows(fit))
            return float(torch.linalg.eigvalsh(scatter / count).median().rsqrt())

        low, high = model.layer(0), model.layer(layer)
        ratio = 2 * scale(low), scale(high)
        return fitted(lambda texts: ratio[0] * low(texts) + ratio[1] * high(texts), "whiten", fit)
    raise SystemExit(f"no idea {idea!r}: {__doc__}")


class Vectors:
    """What make_encoder asks of a recipe's vectors."""

    recipe = Recipe(0)

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __call__(self, texts: list[str], prompt: str = "", role: str = "") -> object:
        return self.rows(texts).float().numpy()


def main(model_file: Path, texts_file: Path, root: Path, out: Path, fitted_on: str, *ideas: str) -> None:
    import mteb

    model = Model(json.loads(model_file.read_text())[0])
    given = [example.text for example in layerwise.texts(texts_file)]
    rows = []
    for task in choose_tasks("all", root):
        fit = given if fitted_on == "texts" else list(task_texts(task))
        for idea in ideas:
            encoder = make_encoder(Vectors(idea_rows(model, idea, fit)), name="idea", revision="", prompts={})  # type: ignore[arg-type]
            with quiet_libraries(), columns_as_lists(), content_cache(task, model.folder / "datasets"):
                found = mteb.evaluate(encoder, load_task(task), cache=None, show_progress_bar=False)
            told = {"model": model.entry["name"], "idea": idea, "fitted_on": fitted_on, "task": task.name}
            rows.append(told | {"type": task.type, "score": round(100 * found.task_results[0].get_score(), 3)})
    frame = pd.DataFrame(rows)
    frame.to_csv(out, index=False)
    print(frame.groupby("idea").score.mean().round(2).to_string())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]), *sys.argv[5:])

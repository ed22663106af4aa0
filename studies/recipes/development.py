"""Tries recipes on the development tasks, many at a time: vectors of every layer once per template, then fast scores.

    python studies/recipes/development.py encode MODEL DATA WIKITEXT FOLDER TEMPLATE... [--dtype bfloat16] [--quick]
    python studies/recipes/development.py score DATA FOLDER MODEL OUT.csv RECIPE...
    python studies/recipes/development.py layers DATA FOLDER MODEL OUT.csv TEMPLATE:POOLING:MAP...

A RECIPE is one or more parts TEMPLATE:POOLING:LAYER:MAP joined by ` + `, and `@DIMENSIONS` at its end if only that many
principal directions are kept, such as `prompteol:last:29:remove_top:8 + prompteol:mean:29:remove_top:8@256`. The layer
after the last is the last with the final norm. Maps are fitted on the first sentences of 1,000 paragraphs of
WikiText-2 train. Besides the maps of layerwise there are `soften:P` (eigenvalues to the power 1 - P) and `bulk:K` (the
middle K singular directions of the output matrix); `a/b` is one map after the other. Vectors are scaled to a root mean
square of one, because logistic regression depends on their scale.

The scores are those of mteb's definitions in a few lines, with 3 instead of 10 draws of training texts: close to what
`layerwise eval` gives, and much faster. They choose between ideas; no figure of a result rests on them.
"""

import argparse
import csv
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prepare import DEVELOPMENT, TEST, tables
from scipy.stats import spearmanr
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, v_measure_score

import layerwise
from layerwise.core.recipe import Readout
from layerwise.inputs.perturbations.changes import NO_VIEWS, ViewPlan
from layerwise.inputs.processor import Masks, Prepared
from layerwise.inputs.source import Example
from layerwise.inputs.text_processor import TextProcessor
from layerwise.inputs.tokenizing import added_ids
from layerwise.models.load import build_network
from layerwise.models.opening import open_network
from layerwise.passes.vectors import pooled_vectors
from layerwise.verbs.pick.probes import proxy_probes

TYPES = ("STS", "PairClassification", "Classification", "Clustering", "Reranking", "Retrieval")
QUICK_TASKS = (  # for comparing many templates and every layer
    "SICK-R", "STSCaptions", "BIOSSES", "EmotionClassification", "StackOverflowTitlesClustering", "WikiQARetrieval",
    "WikiTextRetrieval",
)  # fmt: skip
SAMPLES_PER_LABEL = {"EmotionClassification": 16}  # as in mteb; 8 otherwise
DRAWS = 3
ECHO = "echo"  # the text twice, mean of the second copy: an upper reference, not a recipe
Vectors = Callable[[Sequence[str]], Any]
Tasks = Mapping[str, tuple[str, str]]  # the folder of a task's data, and its type


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    encode = commands.add_parser("encode")
    encode.add_argument("model")
    encode.add_argument("data", type=Path)
    encode.add_argument("wikitext", type=Path)
    encode.add_argument("folder", type=Path)
    encode.add_argument("templates", nargs="+")
    encode.add_argument("--dtype", default="float32")
    encode.add_argument("--test", action="store_true", help="the test tasks and their labels, for few_labels.py")
    encode.add_argument("--quick", action="store_true", help="the tasks that `layers` scores, and no other")
    for name in ("score", "layers"):
        score = commands.add_parser(name)
        score.add_argument("data", type=Path)
        score.add_argument("folder", type=Path)
        score.add_argument("model")
        score.add_argument("out", type=Path)
        score.add_argument("recipes", nargs="+")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # mteb stops logistic regression after 100 steps as well
    if args.command == "encode":
        tasks = TEST if args.test else quick_tasks() if args.quick else DEVELOPMENT
        encode_texts(args.model, args.data, args.wikitext, args.folder, args.templates, args.dtype, tasks)
    elif args.command == "score":
        score_recipes(args.data, args.folder, args.model, args.out, args.recipes)
    else:
        score_layers(args.data, args.folder, args.model, args.out, args.recipes)


def encode_texts(
    model: str, data: Path, wikitext: Path, folder: Path, templates: list[str], dtype: str, tasks: Tasks
) -> None:
    """Vectors of the texts of these tasks, of the texts for fitting maps, and of the bundled sentences."""
    fit = fitting_texts(wikitext)
    bundled = [text for probe in proxy_probes() for text in probe.texts]
    encode_list(model, folder, templates, dtype, [*task_texts(data, tasks), *fit, *bundled], fit)


def encode_list(
    model: str, folder: Path, templates: list[str], dtype: str, texts: Sequence[str], fit: Sequence[str]
) -> None:
    """Writes the mean and the last token of every layer, (layers, texts, width), once per template."""
    texts = list(dict.fromkeys(texts))
    network = open_network(layerwise.ModelSpec(model, dtype=dtype))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{Path(model).name}-texts.json").write_text(json.dumps({"texts": texts, "fit": fit}))
    layers = [(layer, "raw") for layer in range(network.depth + 1)] + [(network.depth, "normed")] * network.has_norm
    readouts = {
        pooling: [Readout(layer, norm, "all", pooling) for layer, norm in layers] for pooling in ("mean", "last")
    }
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    for name in templates:
        wanted = [*readouts["mean"], *readouts["last"]]
        if name == ECHO:
            wanted = [replace(readout, tokens="no_special") for readout in readouts["mean"]]
            echoed = build_network(network.module, EchoProcessor(network.tokenizer), network.name)
            rows = pooled_vectors(echoed, examples, wanted, max_length=128)  # of each copy
            np.save(folder / f"{Path(model).name}-{name}-mean.npy", np.stack([rows[r].numpy() for r in wanted]))
            continue
        template = "" if name == "plain" else name
        rows = pooled_vectors(network, examples, wanted, max_length=256, template=template)
        for pooling, of_layers in readouts.items():
            stacked = np.stack([rows[readout].numpy() for readout in of_layers])
            np.save(folder / f"{Path(model).name}-{name}-{pooling}.npy", stacked)


@dataclass(frozen=True)
class EchoProcessor(TextProcessor):
    """Each text twice; all but the second copy counts as special, so that `no_special` is the second copy."""

    def identity(self) -> str:
        return ECHO

    def prepare(self, examples: Sequence[Example], max_length: int, view_plan: ViewPlan = NO_VIEWS) -> list[Any]:
        again = tuple(self.tokenizer("\nAgain: ", add_special_tokens=False)["input_ids"])
        added = added_ids(self.tokenizer).special
        found = []
        for prepared in super().prepare(examples, max_length, view_plan):
            first = tuple(prepared.views[0])
            second = tuple(i for i in first if i not in added) or first
            whole = (*first, *again, *second)
            found.append(EchoedText(**vars(prepared) | {"views": (whole,), "sizes": (len(whole),)}, copy=len(second)))
        return found

    def masks(self, group: Sequence[Any], inputs: Mapping[str, Any], positions: int) -> Masks:
        real = super().masks(group, inputs, positions).real
        special = real.clone()
        for row, text in enumerate(group):
            special[row, 0, text.sizes[0] - text.copy : text.sizes[0]] = False
        return Masks(real, special)


@dataclass(frozen=True)
class EchoedText(Prepared[Any]):
    copy: int = 0  # tokens of the second copy


def quick_tasks() -> Tasks:
    return {name: DEVELOPMENT[name] for name in QUICK_TASKS}


def fitting_texts(wikitext: Path) -> list[str]:
    paragraphs = layerwise.texts(wikitext, only="wikitext", sample=1000)
    return [f"{example.text.split(' . ')[0][:600]} ." for example in paragraphs]


def task_texts(data: Path, tasks: Tasks) -> list[str]:
    return texts_of(table for name, (folder, kind) in tasks.items() for table in tables(data, name, folder, kind))


def texts_of(tables_of_tasks: Iterable[pd.DataFrame | None]) -> list[str]:
    """Every text of the tables of tasks."""
    found: list[str] = []
    for table in (table for table in tables_of_tasks if table is not None):
        for column in ("text", "sentence1", "sentence2", "query"):
            found += list(table[column]) if column in table else []
        for column in ("sentences", "positive", "negative"):
            found += [text for texts in table[column] for text in texts] if column in table else []
    return found


class Store:
    """The vectors of a model, by template and pooling."""

    def __init__(self, folder: Path, model: str) -> None:
        record = json.loads((folder / f"{model}-texts.json").read_text())
        self.folder, self.model = folder, model
        self.index = {text: i for i, text in enumerate(record["texts"])}
        self.fit = [self.index[text] for text in record["fit"]]

    def layers(self, template: str, pooling: str) -> Any:
        return np.load(self.folder / f"{self.model}-{template}-{pooling}.npy", mmap_mode="r")

    def mapped(self, template: str, pooling: str, layer: int, map_name: str) -> Any:
        rows = self.layers(template, pooling)[layer].astype(np.float64)
        path = self.folder / f"{self.model}-output.npy"
        return fit_and_map(rows, self.fit, map_name, np.load(path).astype(np.float64) if "bulk" in map_name else None)

    def recipe(self, text: str) -> Any:
        text, _, dims = text.partition("@")
        parts = []
        for part in text.split(" + "):
            template, pooling, layer, map_name = part.strip().split(":", 3)
            rows = self.mapped(template, pooling, int(layer), map_name)
            parts.append(rows / np.sqrt((rows[self.fit] ** 2).sum(axis=1).mean()))
        rows = np.concatenate(parts, axis=1)
        return fit_and_map(rows, self.fit, f"pca:{dims}") if dims else rows

    def lookup(self, rows: Any) -> Vectors:
        return scaled_lookup(rows, self.fit, self.index)


def scaled_lookup(rows: Any, fit: list[int], index: Mapping[str, int]) -> Vectors:
    """Rows of texts with a root mean square of one: logistic regression depends on their scale."""
    scaled = (rows / np.sqrt((rows[fit] ** 2).mean())).astype(np.float32)
    return lambda texts: scaled[[index[text] for text in texts]]


def fit_and_map(rows: Any, fit: list[int], map_name: str, output_matrix: Any = None) -> Any:
    for step in map_name.split("/"):
        name, *numbers = step.split(":")
        if name == "none":
            continue
        if name == "bulk":  # middle right singular vectors of the output matrix
            _, directions = np.linalg.eigh(output_matrix.T @ output_matrix)
            skipped = (rows.shape[1] - int(numbers[0])) // 2
            rows = rows @ directions[:, skipped : skipped + int(numbers[0])]
            continue
        mean = rows[fit].mean(axis=0)
        values, directions = np.linalg.eigh(np.cov(rows[fit].T, bias=True))
        rows = rows - mean
        if name == "remove_top":
            top = directions[:, -int(numbers[0]) :]
            rows = rows - (rows @ top) @ top.T
        elif name == "pca":
            rows = rows @ directions[:, -int(numbers[0]) :]
        elif name in ("whiten", "soften"):
            shrinkage, power = (0.1, 1.0) if name == "whiten" else (0.01, float(numbers[0]))
            shrunk = (1 - shrinkage) * values.clip(0) + shrinkage * values.mean()
            rows = rows @ (directions / shrunk ** (power / 2))
        elif name != "center":
            raise ValueError(f"unknown map {step}")
    return rows


def score_recipes(data: Path, folder: Path, model: str, out: Path, recipes: list[str]) -> None:
    store, tasks = Store(folder, model), load_tasks(data, DEVELOPMENT)
    for text in recipes:
        write_row(out, {"model": model, "recipe": text}, score_tasks(tasks, store.lookup(store.recipe(text))))


def score_layers(data: Path, folder: Path, model: str, out: Path, forms: list[str]) -> None:
    store, tasks = Store(folder, model), load_tasks(data, quick_tasks())
    for form in forms:
        template, pooling, map_name = form.split(":", 2)
        # The last token of layer 0 is a full stop, or the end of the template, for nearly every text.
        for layer in range(int(pooling == "last"), len(store.layers(template, pooling))):
            vectors = store.lookup(store.mapped(template, pooling, layer, map_name))
            row = {"model": model, "template": template, "pooling": pooling, "map": map_name, "layer": layer}
            write_row(out, row, score_tasks(tasks, vectors))


def write_row(out: Path, row: dict[str, Any], scores: dict[str, tuple[str, float]]) -> None:
    by_type = {kind: [s for of, s in scores.values() if of == kind] for kind in TYPES}
    means = {kind: float(np.mean(values)) if values else "" for kind, values in by_type.items()}
    row |= {"mean": np.mean([m for m in means.values() if m != ""]), **means}
    row = {name: round(value, 2) if isinstance(value, float) else value for name, value in row.items()}
    new = not out.exists()
    with out.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)


def load_tasks(data: Path, tasks: Tasks) -> dict[str, tuple[str, pd.DataFrame, pd.DataFrame | None]]:
    return {name: (kind, *tables(data, name, folder, kind)[:2]) for name, (folder, kind) in tasks.items()}


def score_tasks(tasks: dict[str, Any], vectors: Vectors) -> dict[str, tuple[str, float]]:
    return {name: (kind, 100 * SCORES[kind](name, test, train, vectors)) for name, (kind, test, train) in tasks.items()}


def unit(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def pair_cosines(test: pd.DataFrame, vectors: Vectors) -> Any:
    return (unit(vectors(list(test.sentence1))) * unit(vectors(list(test.sentence2)))).sum(axis=1)


def sts(name: str, test: pd.DataFrame, train: Any, vectors: Vectors) -> float:
    return float(spearmanr(pair_cosines(test, vectors), test.score)[0])


def pairs(name: str, test: pd.DataFrame, train: Any, vectors: Vectors) -> float:
    return float(average_precision_score(test.labels, pair_cosines(test, vectors)))


def classification(name: str, test: pd.DataFrame, train: pd.DataFrame, vectors: Vectors) -> float:
    rows, train_rows, labels = vectors(list(test.text)), vectors(list(train.text)), np.array(train.label)
    right = []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        count = SAMPLES_PER_LABEL.get(name, 8)
        few = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:count] for c in np.unique(labels)])
        model = LogisticRegression(max_iter=100).fit(train_rows[few], labels[few])
        right.append((model.predict(rows) == np.array(test.label)).mean())
    return float(np.mean(right))


def clustering(name: str, test: pd.DataFrame, train: Any, vectors: Vectors) -> float:
    found = []
    for texts, labels in zip(test.sentences, test.labels, strict=True):
        means = MiniBatchKMeans(len(set(labels)), batch_size=500, n_init=3, random_state=0).fit(vectors(list(texts)))
        found.append(v_measure_score(labels, means.labels_))
    return float(np.mean(found))


def reranking(name: str, test: pd.DataFrame, train: Any, vectors: Vectors) -> float:
    found = []
    for query, positive, negative in zip(test["query"], test.positive, test.negative, strict=True):
        cosines = unit(vectors([*positive, *negative])) @ unit(vectors([query]))[0]
        found.append(average_precision_score([1] * len(positive) + [0] * len(negative), cosines))
    return float(np.mean(found))


def retrieval(name: str, test: pd.DataFrame, train: Any, vectors: Vectors) -> float:
    """nDCG at 10."""
    documents = list(
        dict.fromkeys(text for column in ("positive", "negative") for texts in test[column] for text in texts)
    )
    number = {text: i for i, text in enumerate(documents)}
    cosines = unit(vectors(list(test["query"]))) @ unit(vectors(documents)).T
    gains = 1 / np.log2(np.arange(10) + 2)
    found = []
    for row, positive in zip(cosines, test.positive, strict=True):
        relevant = {number[text] for text in positive}
        hits = np.array([i in relevant for i in np.argsort(-row)[:10]])
        found.append((hits * gains[: len(hits)]).sum() / gains[: min(10, len(relevant))].sum())
    return float(np.mean(found))


SCORES: dict[str, Callable[[str, pd.DataFrame, Any, Vectors], float]] = {
    "STS": sts, "PairClassification": pairs, "Classification": classification, "Clustering": clustering,
    "Reranking": reranking, "Retrieval": retrieval,
}  # fmt: skip


if __name__ == "__main__":
    main()

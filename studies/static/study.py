"""Models without a transformer: what they keep of their teacher, which choices matter, and what they cost.

    python studies/eval/prepare.py SHARED_DATA ROOT --cap 300 --cap-all
    python studies/static/study.py STAGE MODELS SHARED_DATA ROOT KEPT [--only MODEL]

Stages: `vectors` (the teachers' vectors of the texts; most of the time), `choices` (development tasks only), `test`
(all tasks), `costs` (texts per second and size, in turns), `index` (static queries in the teacher's index). What is
computed is kept in KEPT, and a row that is in a CSV is not computed again. The stage `test` needs model2vec.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from torch import Tensor

import layerwise
from layerwise.core.recipe import Readout
from layerwise.maps.linear import fit_parts
from layerwise.maps.ridge import fit_ridge
from layerwise.models.opening import open_network
from layerwise.verbs.shrink.bags import (
    add_words,
    bare_tokenizer,
    frequent_words,
    token_bags,
    token_weights,
    vocabulary_size,
)
from layerwise.verbs.shrink.static import fit_static, principal_directions, token_rows
from layerwise.verbs.shrink.student import own_vectors
from layerwise.verbs.shrink.texts import PromptedText

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "shrink"))
from kept import add_rows  # noqa: E402
from originals import original  # noqa: E402
from study import sentences  # noqa: E402

TEXTS = {"all-minilm-l6-v2": 8000, "gte-small": 8000, "all-mpnet-base-v2": 4000}
TEXTS |= {"smollm2-135m": 8000, "gemma3-270m": 8000}
ENCODERS = ("all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2")
DEVELOPMENT = (
    "STSBenchmark", "STS13", "MRPC", "Banking77Classification", "EmotionClassification", "BiomedicalTitlesClustering",
    "TrecQAReranking",
)  # fmt: skip
HELD_OUT = 500
ROUNDS = 5
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread, as for everything else


@dataclass(frozen=True)
class Choice:
    """One static model."""

    model: str
    layer: int = -1  # -1: the last
    tokens: str = "no_special"
    weights: str = "sif"
    words: int = 0
    map: str = "fit"  # ridge, fit (ridge, then the rows), fit with + and a transform, or a transform alone
    texts: int = 0
    dims: int = 0


class Maker:
    """Makes static models of one teacher, from vectors that were computed once."""

    def __init__(self, name: str, models: Path, data: Path, kept: Path, texts: int | None = None) -> None:
        self.name, self.kept = name, kept
        self.folder = original(name, models, kept) if name in ENCODERS else models / name
        self.texts = sentences(data / "wikitext2" / "train.parquet", 24000)[: texts or TEXTS[name]]
        self._network = None

    @property
    def network(self):
        if self._network is None:
            self._network = open_network(str(self.folder))
        return self._network

    def targets(self) -> Tensor:
        """The teacher's vectors of all texts; continued where an earlier call was stopped."""
        path = self.kept / "vectors" / f"{self.name}.npy"
        path.parent.mkdir(exist_ok=True)
        done = np.load(path) if path.is_file() else np.zeros((0, self.network.width), np.float32)
        while len(done) < len(self.texts):
            part = [PromptedText(text) for text in self.texts[len(done) : len(done) + 500]]
            done = np.concatenate([done, own_vectors(self.network, part, self.network.default_length).numpy()])
            np.save(path, done)
            print(self.name, len(done), flush=True)
        return torch.from_numpy(done[: len(self.texts)])

    def rows(self, choice: Choice, entries: list[tuple[int, ...]], words: int) -> Tensor:
        """The rows of the vocabulary, stored, and those of added words."""
        number = self.network.depth if choice.layer < 0 else choice.layer
        normed = number == self.network.depth and self.network.has_norm
        readout = Readout(number, "normed" if normed else "raw", choice.tokens)
        path = self.kept / "rows" / f"{self.name}-{number}-{choice.tokens}.npy"
        path.parent.mkdir(exist_ok=True)
        if not path.is_file():
            np.save(path, token_rows(self.network, entries[: len(entries) - words], readout).numpy())
        own = torch.from_numpy(np.load(path))
        return torch.cat([own, token_rows(self.network, entries[-words:], readout)]) if words else own

    def make(self, choice: Choice) -> tuple[SentenceTransformer, dict[str, float]]:
        """The model of a choice, and what its fit says."""
        tokenizer = bare_tokenizer(self.network.tokenizer, self.name)
        size, texts = vocabulary_size(tokenizer), self.texts[: choice.texts or None]
        entries: list[tuple[int, ...]] = [(i,) for i in range(size)]
        words = frequent_words(tokenizer, texts, choice.words) if choice.words else []
        entries += [tuple(one.ids) for one in tokenizer.encode_batch(words, add_special_tokens=False)] if words else []
        known = self.network.module.get_input_embeddings().weight.shape[0]
        entries = [entry if max(entry) < known else (0,) for entry in entries]
        own = self.rows(choice, entries, len(words))
        add_words(tokenizer, words)
        bags, held = token_bags(tokenizer, texts[HELD_OUT:]), token_bags(tokenizer, texts[:HELD_OUT])
        rows = own * token_weights(choice.weights, len(own), bags).unsqueeze(1)
        found: dict[str, float] = {}
        kind, _, then = choice.map.partition("+")
        if kind in ("fit", "ridge"):
            targets = self.targets()[: len(texts)]
            if kind == "ridge":
                fit = fit_ridge(bags.means(rows), targets[HELD_OUT:], held.means(rows), targets[:HELD_OUT])
                rows, found = fit.linear(rows).float(), {"unexplained": fit.unexplained}
            else:
                made = fit_static(rows, bags, targets[HELD_OUT:], held, targets[:HELD_OUT])
                rows = made.rows
                found = {"unexplained": made.unexplained, "row_penalty": made.row_penalty}
            if then:
                (linear,) = fit_parts([(then, bags.means(rows))])
                rows = linear(rows).float()
            if choice.dims:
                rows = rows @ principal_directions(bags.means(rows), choice.dims)
        elif choice.map != "none":
            (linear,) = fit_parts([(choice.map, bags.means(rows))], choice.dims or None)
            rows = linear(rows).float()
        modules = [StaticEmbedding(tokenizer, embedding_weights=rows.contiguous()), Normalize()]
        return SentenceTransformer(modules=modules, device="cpu"), found


def score(model: object, root: Path, tasks: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        table = layerwise.eval(model, tasks, data_root=root, layers="last", out=folder, vectors="evict")
        return {row.metric: round(row.value, 3) for row in table}


def choices(name: str) -> list[Choice]:
    """The choices that are compared on the development tasks: one thing is changed at a time."""
    base = Choice(name, texts=4000 if name == "all-minilm-l6-v2" else TEXTS[name])
    if name not in ENCODERS:
        maps = ("whiten", "remove_top:3", "none")
        return [replace(base, layer=layer, map=m) for layer in (0, -1) for m in maps] + [
            replace(base, layer=0, map="whiten", weights=w) for w in ("none", "idf", "zipf")
        ]
    last = replace(base, tokens="all", weights="zipf")
    then = [replace(last, map=m) for m in ("fit", "fit+center", "fit+whiten")]
    if name != "all-minilm-l6-v2":
        return then if name == "gte-small" else []
    layers = [replace(base, layer=layer) for layer in (0, 2, 4)] + [replace(base, tokens="all")]
    weights = [replace(base, weights=w) for w in ("none", "idf", "zipf")]
    maps = [replace(base, map=m) for m in ("ridge", "whiten", "remove_top:3", "none")]
    sizes = [replace(base, texts=1000)]
    rest = [replace(base, words=2000), replace(base, layer=0, map="whiten"), replace(base, dims=256)]
    return [base, *maps, *layers, *weights, *sizes, *rest, *then]


def is_known(name: str, row: dict[str, object]) -> bool:
    if not (HERE / name).is_file():
        return False
    table = pd.read_csv(HERE / name)
    return bool((table[list(row)] == pd.Series(row)).all(axis=1).any())


def compare_choices(maker: Maker, root: Path) -> None:
    for choice in choices(maker.name):
        if is_known("choices.csv", asdict(choice)):
            continue
        model, found = maker.make(choice)
        scores = score(model, root, list(DEVELOPMENT))
        row = asdict(choice) | {key: round(value, 4) for key, value in found.items()} | scores
        row["mean"] = round(float(np.mean(list(scores.values()))), 2)
        add_rows(HERE / "choices.csv", pd.DataFrame([row]), list(asdict(choice)))
        print(row, flush=True)


def methods(maker: Maker) -> Iterator[tuple[str, Callable[[], SentenceTransformer]]]:
    """The static models of one teacher that are scored on all tasks, by name. What is ours was chosen in `choices`."""
    base, baseline = (
        Choice(maker.name, tokens="all", weights="zipf", map="fit+center"),
        Choice(maker.name, layer=0, map="whiten"),
    )
    if maker.name in ENCODERS:
        yield "static", lambda: maker.make(base)[0]
        yield "model2vec", lambda: model2vec(maker, 256)
        yield "layer 0 whitened", lambda: maker.make(baseline)[0]
        yield "static, 256 dimensions", lambda: maker.make(replace(base, dims=256))[0]
        yield "whole", lambda: SentenceTransformer(str(maker.folder), device="cpu")
    else:
        yield "layer 0 whitened", lambda: maker.make(baseline)[0]
        yield "model2vec", lambda: model2vec(maker, 256)


def model2vec(maker: Maker, dims: int) -> SentenceTransformer:
    """What model2vec makes of the same teacher, with its default settings."""
    from model2vec.distill import distill

    made = distill(str(maker.folder), pca_dims=dims, device="cpu", quantize_to="float32")
    rows = StaticEmbedding._fold_model2vec_weights(
        made.embedding, getattr(made, "token_mapping", None), getattr(made, "weights", None)
    )
    modules = [StaticEmbedding(made.tokenizer, embedding_weights=rows.float()), Normalize()]
    return SentenceTransformer(modules=modules, device="cpu")


def save(model: SentenceTransformer, maker: Maker, method: str) -> Path:
    folder = maker.kept / "made" / f"{maker.name}-{method.replace(' ', '-').replace(',', '')}"
    shutil.rmtree(folder, ignore_errors=True)
    model.save(str(folder), create_model_card=False)
    return folder


def score_methods(maker: Maker, root: Path) -> None:
    tasks = sorted(path.name for path in root.iterdir() if path.is_dir())
    for method, make in methods(maker):
        key = {"model": maker.name, "method": method}
        if is_known("scores.csv", key):
            continue
        model = make()
        if method != "whole":
            save(model, maker, method)
        scores = score(model, root, tasks)
        rows = [
            key | {"task": task, "development": task in DEVELOPMENT, "score": value} for task, value in scores.items()
        ]
        add_rows(HERE / "scores.csv", pd.DataFrame(rows), ["model", "method", "task"])
        print(key, round(float(np.mean(list(scores.values()))), 2), flush=True)


def time_methods(maker: Maker) -> None:
    """Texts per second of CPU time on one thread, and megabytes; the teacher and its static models in turns."""
    torch.set_num_threads(1)
    folders = {"whole": maker.folder} | {
        path.name.removeprefix(f"{maker.name}-"): path for path in sorted((maker.kept / "made").glob(f"{maker.name}-*"))
    }
    models = {name: SentenceTransformer(str(folder), device="cpu") for name, folder in folders.items()}
    texts = {name: maker.texts[: 32 if name == "whole" else 2000] for name in models}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS + 1):  # the first warms up
        for name, model in models.items():
            began = time.process_time()
            model.encode(texts[name], batch_size=32, show_progress_bar=False)
            seconds[name].append((time.process_time() - began) / len(texts[name]))
    whole = np.array(seconds["whole"][1:])
    for name in models:
        found = np.array(seconds[name][1:])
        size = sum(path.stat().st_size for path in folders[name].rglob("*.safetensors"))
        row = {
            "model": maker.name, "method": name, "texts_per_second": round(1 / float(np.median(found)), 1),
            "times_as_fast": round(float(np.median(whole / found)), 1), "megabytes": round(size / 1e6, 1),
        }  # fmt: skip
        add_rows(HERE / "costs.csv", pd.DataFrame([row]), ["model", "method"])
        print(row, flush=True)


def search_index(maker: Maker, data: Path) -> None:
    """WikiQA: the mean reciprocal rank of the first right sentence among those of all questions."""
    table = pd.read_parquet(data / "wikiqa_reranking" / "test.parquet")
    queries = [str(query) for query in table["query"]]
    documents: dict[str, int] = {}
    right = []
    for positive, negative in zip(table.positive, table.negative, strict=True):
        places = [documents.setdefault(str(text), len(documents)) for text in (*positive, *negative)]
        right.append(set(places[: len(positive)]))

    def reciprocal_rank(order: np.ndarray, wanted: set[int]) -> float:
        return 1 / next(i for i, place in enumerate(order, 1) if place in wanted)

    def mrr(query_vectors: np.ndarray, document_vectors: np.ndarray) -> float:
        orders = np.argsort(-(query_vectors @ document_vectors.T), axis=1, kind="stable")
        return round(float(np.mean([reciprocal_rank(o, w) for o, w in zip(orders, right, strict=True)])), 4)

    teacher = SentenceTransformer(str(maker.folder), device="cpu")
    static = SentenceTransformer(str(maker.kept / "made" / f"{maker.name}-static"), device="cpu")
    of_teacher, of_static = (
        [model.encode(texts, show_progress_bar=False, batch_size=32) for texts in (queries, list(documents))]
        for model in (teacher, static)
    )
    row = {
        "model": maker.name, "queries": len(queries), "documents": len(documents), "teacher": mrr(*of_teacher),
        "static_queries": mrr(of_static[0], of_teacher[1]), "static_documents": mrr(of_teacher[0], of_static[1]),
        "static": mrr(*of_static),
    }  # fmt: skip
    add_rows(HERE / "index.csv", pd.DataFrame([row]), ["model"])
    print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["vectors", "choices", "test", "costs", "index"])
    for name in ("models", "data", "root", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--only", help="one model")
    parser.add_argument("--texts", type=int, help="fewer texts, to try it")
    args = parser.parse_args()
    for name in [args.only] if args.only else TEXTS:
        maker = Maker(name, args.models, args.data, args.kept, args.texts)
        if args.stage == "vectors":
            maker.targets()
        elif args.stage == "choices":
            compare_choices(maker, args.root)
        elif args.stage == "test":
            score_methods(maker, args.root)
        elif args.stage == "costs":
            time_methods(maker)
        elif name in ENCODERS:
            search_index(maker, args.data)


if __name__ == "__main__":
    main()

"""What int8 and q8_0 cost on three tasks: `python quantised.py MODELS OUT DATA [MODEL ...]`.

MODELS and OUT as in differences.py, which is run first; DATA has stsbenchmark, banking77 and wikiqa_reranking as
Parquet files. One row per model, task and precision is appended to quantised.csv; a row that is there is not computed
again.
Every precision embeds the same texts, cut to 128 tokens. Intervals are 95 %, by drawing the examples of a task again,
the same ones for both precisions.

STSBenchmark: Spearman correlation of cosine and rating, 500 pairs. Banking77: accuracy of a logistic regression on 8
training texts per class, 500 test texts. WikiQA: mean reciprocal rank of the first right sentence among the sentences
of all 120 questions. All times 100.
"""

import csv
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from differences import CASES, MAX_LENGTH, saved
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

import layerwise
from layerwise.models.families.gguf_layouts import gguf_problem
from layerwise.models.opening import open_network
from layerwise.verbs.export.backends.backend import ExportJob
from layerwise.verbs.export.backends.gguf.backend import Q8_FILE, load_gguf
from layerwise.verbs.export.backends.onnx import GRAPH_FILE, INT8_FILE, load_graph

TABLE = Path(__file__).parent / "quantised.csv"
COLUMNS = ["model", "layer", "task", "runtime", "precision", "examples", "float32", "score", "change", "low", "high",
           "mean_cosine"]  # fmt: skip
MODELS = ("all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2", "smollm2-135m")
DRAWS, PAIRS, TESTS, PER_CLASS, QUESTIONS = 1000, 500, 500, 8, 120


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Similarity:
    """STSBenchmark: pairs drawn at random, since neighbours in the file are alike."""

    name = "STSBenchmark"

    def __init__(self, data: Path) -> None:
        table = pd.read_parquet(data / "stsbenchmark/test.parquet").sample(PAIRS, random_state=0)
        self.texts = [*table.sentence1, *table.sentence2]
        self.ratings = table.score.to_numpy()

    def values(self, rows: np.ndarray) -> np.ndarray:
        first, second = np.split(unit(rows), 2)
        return (first * second).sum(1)

    def score(self, values: np.ndarray, drawn: np.ndarray) -> float:
        return 100 * float(spearmanr(values[drawn], self.ratings[drawn]).statistic)


class Classes:
    """Banking77: 77 intents."""

    name = "Banking77"

    def __init__(self, data: Path) -> None:
        train, test = (pd.read_parquet(data / f"banking77/{part}.parquet") for part in ("train", "test"))
        train = train.sample(frac=1, random_state=0).groupby("label").head(PER_CLASS)
        test = test.sample(TESTS, random_state=0)
        self.texts, self.count = [*train.text, *test.text], len(train)
        self.trained, self.tested = train.label.to_numpy(), test.label.to_numpy()

    def values(self, rows: np.ndarray) -> np.ndarray:
        model = LogisticRegression(max_iter=300).fit(rows[: self.count], self.trained)
        return model.predict(rows[self.count :]) == self.tested

    def score(self, values: np.ndarray, drawn: np.ndarray) -> float:
        return 100 * float(values[drawn].mean())


class Search:
    """WikiQA: every question searches the sentences of all questions."""

    name = "WikiQA"

    def __init__(self, data: Path) -> None:
        table = pd.read_parquet(data / "wikiqa_reranking/test.parquet").sample(QUESTIONS, random_state=0)
        sentences = list(dict.fromkeys(s for name in ("positive", "negative") for row in table[name] for s in row))
        place = {sentence: i for i, sentence in enumerate(sentences)}
        self.right = [[place[sentence] for sentence in row] for row in table.positive]
        self.texts = [*table["query"], *sentences]

    def values(self, rows: np.ndarray) -> np.ndarray:
        cosines = unit(rows[:QUESTIONS]) @ unit(rows[QUESTIONS:]).T
        best = np.array([line[right].max() for line, right in zip(cosines, self.right, strict=True)])
        return 1 / (1 + (cosines > best[:, None]).sum(1))

    def score(self, values: np.ndarray, drawn: np.ndarray) -> float:
        return 100 * float(values[drawn].mean())


def embedded(encoder, texts: list[str]) -> np.ndarray:
    """The vectors, computed in order of length so that little is padded."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    rows = encoder.encode([texts[i] for i in order]).numpy()
    return rows[np.argsort(order)]


def precisions(name: str, models: Path, out: Path):
    """Runtime, precision and a function that loads the model; float32 comes first."""
    layer, options = CASES[name][0]
    network = open_network(str(models / name))
    job = ExportJob(network, layerwise.Recipe(layer, max_length=MAX_LENGTH, **options), None, MAX_LENGTH, "compact")
    folder = out / f"{name}-none"
    for precision, file in (("float32", GRAPH_FILE), ("int8", INT8_FILE)):
        yield "ONNX Runtime", precision, partial(load_graph, saved(job, folder / "onnx", "onnx"), file)
    if not gguf_problem(network.module.config):
        yield "llama.cpp", "q8_0", partial(load_gguf, saved(job, folder / "gguf", "gguf"), Q8_FILE)


def main(models: Path, out: Path, data: Path, names: list[str]) -> None:
    if not TABLE.exists():
        TABLE.write_text(",".join(COLUMNS) + "\n")
    tasks = [Similarity(data), Classes(data), Search(data)]
    for name in names or MODELS:
        with TABLE.open() as file:
            done = {(r["task"], r["precision"]) for r in csv.DictReader(file) if r["model"] == name}
        whole: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for runtime, precision, load in precisions(name, models, out):
            todo = [task for task in tasks if precision == "float32" or (task.name, precision) not in done]
            encoder = load() if todo else None
            for task in todo:
                rows = embedded(encoder, task.texts)
                values = task.values(rows)
                if precision == "float32":
                    whole[task.name] = rows, values
                    continue
                exact_rows, exact = whole[task.name]
                everything, random = np.arange(len(exact)), np.random.default_rng(0)
                before, after = task.score(exact, everything), task.score(values, everything)
                draws = [random.integers(0, len(exact), len(exact)) for _ in range(DRAWS)]
                changes = [task.score(values, drawn) - task.score(exact, drawn) for drawn in draws]
                low, high = np.percentile(changes, [2.5, 97.5])
                cosine = (unit(rows) * unit(exact_rows)).sum(1).mean()
                row = [name, CASES[name][0][0], task.name, runtime, precision, len(exact)]
                row += [f"{x:.2f}" for x in (before, after, after - before, low, high)] + [f"{cosine:.5f}"]
                with TABLE.open("a") as file:
                    csv.writer(file, lineterminator="\n").writerow(row)
                print(*row, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])

"""What a linear map recovers of a model with half of its blocks, by the texts it is fitted on and by what it reads.

    python studies/shrink/maps.py MODELS SHARED_DATA [--only MODEL]

Development models and tasks only (studies/protocol). No training. Each row of maps.csv is a map: fitted on some kinds
of text, from some poolings of the last kept block (`mean`, or `mean+max+cls` side by side). Its columns are the
accuracy of a logistic regression with 16 examples per class (Banking77, MASSIVE intents, Emotion), the rank correlation
of STSBenchmark, the MRR of WikiQA's questions in documents of the whole model (`old`) and of the small one (`new`), and
the mean cosine with the whole model's vectors on held-out sentences, parts of sentences and random words, on which the
penalty of the map was chosen as well.
"""

import argparse
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from short_texts import parts_of, random_words, whole_words
from sklearn.linear_model import LogisticRegression

from layerwise.maps.ridge import fit_ridge
from layerwise.models.modules import transformer_module
from layerwise.models.truncate import keep_blocks
from layerwise.verbs.shrink.texts import PromptedText

HERE = Path(__file__).parent
BLOCKS = {"all-minilm-l6-v2": (1, 5, 6), "gte-small": (1, 2, 9, 10, 11, 12), "all-mpnet-base-v2": (1, 2, 3, 10, 11, 12)}
SENTENCES, HELD_OUT, REQUESTS, TESTED, PER_CLASS = 6000, 600, 4000, 2000, 16
LENGTH = 256
CLASSES = ("banking77", "massive_intent_en", "emotion")
FITTED_ON = ("sentences", "sentences+parts", "sentences+parts+words", "sentences+requests",
             "sentences+parts+words+requests", "requests")  # fmt: skip
READ = {"mean": (0,), "mean+max+cls": (0, 1, 2)}
Rows = Callable[[str], np.ndarray]


def sentences(data: Path) -> list[str]:
    """Different sentences of WikiText-2."""
    lines = (str(line).strip() for line in pd.read_parquet(data / "wikitext2" / "train.parquet").text)
    parts = (part.strip() for line in lines if line and not line.startswith("=")
             for part in re.split(r'(?<=[.!?]) (?=[A-Z"])', line))  # fmt: skip
    return random.Random(0).sample(
        sorted({part for part in parts if 5 <= len(part.split()) <= 60}), SENTENCES + HELD_OUT
    )


def texts_of(data: Path, tokenizer: object) -> tuple[dict[str, list[str]], dict[str, list]]:
    """All texts by name, and what is right for those of the tasks."""
    found = sentences(data)
    texts, words = {"sentences": found[:SENTENCES], "held-out sentences": found[SENTENCES:]}, whole_words(tokenizer, 0)
    for prefix in ("", "held-out "):
        items = [PromptedText(text) for text in texts[f"{prefix}sentences"]]
        texts[f"{prefix}parts"] = [item.text for item in parts_of(items, 0)]
        texts[f"{prefix}words"] = [item.text for item in random_words(items, words, 0)]
    requests = [pd.read_parquet(data / name / "train.parquet").text.drop_duplicates() for name in CLASSES[:2]]
    texts["requests"] = [text for part in requests for text in part.sample(REQUESTS // 2, random_state=0)]
    right: dict[str, list] = {}
    for name in CLASSES:
        train, test = (pd.read_parquet(data / name / f"{part}.parquet") for part in ("train", "test"))
        label = next(column for column in train if column.startswith("label"))
        train = train.groupby(label).sample(PER_CLASS, random_state=0, replace=name == "massive_intent_en")
        test = test.sample(min(len(test), TESTED), random_state=0)
        for part, table in (("train", train), ("test", test)):
            texts[f"{name} {part}"], right[f"{name} {part}"] = table.text.tolist(), table[label].tolist()
    pairs = pd.read_parquet(data / "stsbenchmark" / "test.parquet")
    texts["first"], texts["second"] = pairs.sentence1.tolist(), pairs.sentence2.tolist()
    right["pairs"] = pairs[next(column for column in pairs if "score" in column)].tolist()
    search = pd.read_parquet(data / "wikiqa_reranking" / "test.parquet")
    documents = list(dict.fromkeys(text for row in search.itertuples() for text in (*row.positive, *row.negative)))
    place = {text: number for number, text in enumerate(documents)}
    texts["questions"], texts["documents"] = search["query"].tolist(), documents
    right["questions"] = [sorted({place[text] for text in row.positive}) for row in search.itertuples()]
    return texts, right


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def reciprocal_rank(queries: np.ndarray, documents: np.ndarray, right: list[list[int]]) -> float:
    scores = unit(queries) @ unit(documents).T
    best = [scores[number, places].max() for number, places in enumerate(right)]
    return float(np.mean(1 / (1 + (scores > np.array(best)[:, None]).sum(axis=1))))


def measured(rows: Rows, whole: Rows, right: dict[str, list]) -> dict[str, float]:
    """The columns of one row."""
    found = {}
    for name in CLASSES:
        model = LogisticRegression(max_iter=300).fit(unit(rows(f"{name} train")), right[f"{name} train"])
        found[name] = float((model.predict(unit(rows(f"{name} test"))) == np.array(right[f"{name} test"])).mean())
    cosines = (unit(rows("first")) * unit(rows("second"))).sum(axis=1)
    found["stsbenchmark"] = float(spearmanr(cosines, right["pairs"]).statistic)
    found["old"] = reciprocal_rank(rows("questions"), whole("documents"), right["questions"])
    found["new"] = reciprocal_rank(rows("questions"), rows("documents"), right["questions"])
    for name in ("sentences", "parts", "words"):
        ours, theirs = (unit(side(f"held-out {name}")) for side in (rows, whole))
        found[f"cosine, {name}"] = float((ours * theirs).sum(axis=1).mean())
    return {name: round(value, 4) for name, value in found.items()}


def pooled(first: Transformer, lines: list[str]) -> np.ndarray:
    """Mean, maximum and first token side by side (N, 3 D), in this order; that of sentence-transformers is another."""
    width = first.get_embedding_dimension()
    modules = [first, Pooling(width, ("mean", "max", "cls"))]
    found = SentenceTransformer(modules=modules, device="cpu").encode(lines, batch_size=64)
    sample = {
        name: SentenceTransformer(modules=[first, Pooling(width, name)], device="cpu").encode(lines[0])
        for name in ("mean", "max", "cls")
    }
    parts = [found[:, part * width : (part + 1) * width] for part in range(3)]
    return np.hstack([min(parts, key=lambda part, row=row: np.abs(part[0] - row).max()) for row in sample.values()])


def table_of(model: str, models: Path, data: Path) -> pd.DataFrame:
    first = Transformer(str(models / model), max_seq_length=LENGTH)
    width = first.get_embedding_dimension()
    texts, right = texts_of(data, first.tokenizer)
    mean = SentenceTransformer(modules=[first, Pooling(width, "mean"), Normalize()], device="cpu")
    whole = {name: mean.encode(lines, batch_size=64) for name, lines in texts.items()}
    kept = keep_blocks(first.auto_model, [block - 1 for block in BLOCKS[model]])
    assert kept.config.num_hidden_layers == len(BLOCKS[model]) < first.auto_model.config.num_hidden_layers
    features = {name: pooled(transformer_module(kept, first.tokenizer, LENGTH), lines) for name, lines in texts.items()}
    rows = [{"fitted_on": "whole model", "read": ""} | measured(whole.__getitem__, whole.__getitem__, right)]
    cut = measured(lambda name: features[name][:, :width], whole.__getitem__, right)
    rows.append({"fitted_on": "no map", "read": "mean"} | cut)
    held = [f"held-out {name}" for name in ("sentences", "parts", "words")]
    for read, parts in READ.items():
        columns = np.concatenate([np.arange(part * width, (part + 1) * width) for part in parts])

        def joined(side: dict[str, np.ndarray], names: list[str], columns: object = slice(None)) -> torch.Tensor:
            return torch.from_numpy(np.concatenate([side[name] for name in names])[:, columns])

        for fitted_on in FITTED_ON:
            names = fitted_on.split("+")
            kept = held if "parts" in names else held[:1]
            fit = fit_ridge(
                joined(features, names, columns),
                joined(whole, names),
                joined(features, kept, columns),
                joined(whole, kept),
            )
            weight, bias = fit.linear.weight.numpy(), fit.linear.bias.numpy()
            mapped = {name: found[:, columns] @ weight.T + bias for name, found in features.items()}
            rows.append({"fitted_on": fitted_on, "read": read} | measured(mapped.__getitem__, whole.__getitem__, right))
            print(model, rows[-1], flush=True)
    blocks = ",".join(map(str, BLOCKS[model]))
    return pd.DataFrame([{"model": model, "blocks": blocks} | row for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", choices=BLOCKS)
    args = parser.parse_args()
    path = HERE / "maps.csv"
    for model in [args.only] if args.only else BLOCKS:
        table = table_of(model, args.models, args.data)
        earlier = pd.read_csv(path) if path.is_file() else table[:0]
        pd.concat([earlier[earlier.model != model], table]).to_csv(path, index=False)


if __name__ == "__main__":
    main()

"""Is the advice of `shrink` on an index right? A comparison with searches measured from outside.

    python studies/shrink/advice.py MODELS SHARED_DATA KEPT [--only WORDS] [--steps 200]

Each cell makes a small model by the command line and keeps what it says. Then sentence-transformers and FAISS alone
search with the questions of WikiQA's test set: 237 questions among their own candidate sentences and as many lines of
WikiText-2 as make 5,341 documents. No text of WikiQA is fitted on. The texts to fit on are requests to a bank or an
assistant (`requests`: Banking77 and MASSIVE, training sets), these and lines of WikiText-2's training set in one file
(`mixed`), or the same in two files, as queries and documents (`by kind`). Models are kept in KEPT with what was
measured, and a cell that is there is not made again. advice.csv, next to this file, has all cells of KEPT.
"""

import argparse
import json
import subprocess
import sys
from functools import cache, partial
from itertools import product
from pathlib import Path

import faiss
import numpy as np
import pandas as pd
from sentence_transformers import SentenceTransformer

HERE = Path(__file__).parent
LENGTHS = {"all-minilm-l6-v2": 256, "gte-small": 512}
BLOCKS = {"all-minilm-l6-v2": 3, "gte-small": 6}
METHODS = ("linear", "distill", "static")
TEXTS = ("requests", "mixed", "by kind")
REQUESTS, PASSAGES, DOCUMENTS = 4000, 2000, 5341
FEWEST_WORDS = 10  # of a line of WikiText-2
SEED = 0
RESAMPLES = 2000


def texts_of(data: Path) -> tuple[list[str], list[str]]:
    """Requests and lines to fit on."""
    requests = pd.concat(
        pd.read_parquet(data / name / "train.parquet").text.drop_duplicates().sample(REQUESTS // 2, random_state=SEED)
        for name in ("banking77", "massive_intent_en")
    )
    return requests.tolist(), lines(data, "train")[:PASSAGES]


def lines(data: Path, split: str) -> list[str]:
    """The lines of WikiText-2 that are no titles, in random order."""
    found = pd.read_parquet(data / "wikitext2" / f"{split}.parquet").text.str.strip()
    found = found[~found.str.startswith("=") & (found.str.split().str.len() >= FEWEST_WORDS)].drop_duplicates()
    return found.sample(frac=1, random_state=SEED).tolist()


def search_task(data: Path) -> tuple[list[str], list[str], list[set[int]]]:
    """Questions, documents, and the places of the right documents of each question."""
    rows = pd.read_parquet(data / "wikiqa_reranking" / "test.parquet")
    candidates = dict.fromkeys(text for row in rows.itertuples() for text in (*row.positive, *row.negative))
    documents = [*candidates, *lines(data, "test"), *lines(data, "validation")][:DOCUMENTS]
    place = {text: i for i, text in enumerate(documents)}
    return rows["query"].tolist(), documents, [{place[text] for text in row.positive} for row in rows.itertuples()]


def reciprocal_ranks(queries: np.ndarray, documents: np.ndarray, right: list[set[int]]) -> np.ndarray:
    """1 over the rank of the first right document, by an exact search with cosines."""
    queries, documents = (np.ascontiguousarray(rows, dtype=np.float32) for rows in (queries, documents))
    faiss.normalize_L2(queries)
    faiss.normalize_L2(documents)
    index = faiss.IndexFlatIP(documents.shape[1])
    index.add(documents)
    _, found = index.search(queries, len(documents))
    return np.array([
        1 / (1 + next(rank for rank, place in enumerate(row) if place in wanted))
        for row, wanted in zip(found.tolist(), right, strict=True)
    ])  # fmt: skip


Vectors = tuple[np.ndarray, np.ndarray]  # of queries and of documents


def encode(folder: Path, queries: list[str], documents: list[str], length: int | None = None) -> Vectors:
    model = SentenceTransformer(str(folder), device="cpu")
    if length is not None:  # a static model has none
        model.max_seq_length = length
    return tuple(model.encode(part, batch_size=64) for part in (queries, documents))  # type: ignore[return-value]


def measure(old: Vectors, new: Vectors, right: list[set[int]]) -> dict[str, float]:
    """The mean reciprocal rank in the four cases, with the paired differences that the advice is about."""
    ranks = {
        "old": reciprocal_ranks(old[0], old[1], right),
        "new_queries": reciprocal_ranks(new[0], old[1], right),
        "new_documents": reciprocal_ranks(old[0], new[1], right),
        "new": reciprocal_ranks(new[0], new[1], right),
    }
    found = {name: float(values.mean()) for name, values in ranks.items()}
    for name, first, second in (("keeping", "old", "new_queries"), ("re_embedding", "new_queries", "new")):
        gains = ranks[second] - ranks[first]
        draws = np.random.default_rng(SEED).integers(0, len(gains), (RESAMPLES, len(gains)))
        low, high = np.percentile(gains[draws].mean(axis=1), [2.5, 97.5])
        found |= {f"{name}_gain": float(gains.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}
    return found


def make(model: str, method: str, texts: str, folder: Path, args: argparse.Namespace) -> list[str]:
    """Makes the small model by the command line, unless it is there; returns what was printed."""
    printed = folder.with_suffix(".txt")
    if not (folder / "layerwise.json").is_file():
        requests, passages = texts_of(args.data)
        files = {"requests": requests, "passages": passages, "mixed": requests + passages}
        for name, rows in files.items():
            (args.kept / f"{name}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
        path = {name: str(args.kept / f"{name}.jsonl") for name in files}
        source = str(args.models / model)
        words = ["shrink", source, "--method", method]
        words += ["--steps", str(args.steps)] if method == "distill" else []
        if method != "static":
            words += ["--blocks", str(BLOCKS[model]), "--work", str(args.kept / f"{model}.work")]
        if texts == "by kind":
            words += ["--queries", path["requests"], "--documents", path["passages"]]
        else:
            words += ["--data", path[texts]]
        command = [sys.executable, "-m", "layerwise", *words, "--out", str(folder)]
        printed.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return printed.read_text().splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--only", default="", help="cells whose name has these words; several with commas")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    args.kept.mkdir(parents=True, exist_ok=True)
    queries, documents, right = search_task(args.data)
    rows = []
    for model, length in LENGTHS.items():
        whole = cache(partial(encode, args.models / model, queries, documents, length))
        for method, texts in product(METHODS, TEXTS):
            cell = f"{model}-{method}-{texts.replace(' ', '_')}"
            kept = args.kept / f"{cell}.json"
            if any(words in cell for words in args.only.split(",")) and not kept.exists():
                printed = make(model, method, texts, args.kept / cell, args)
                certificate = json.loads((args.kept / cell / "layerwise.json").read_text())
                found = (certificate.get("static") or certificate.get("shrunk"))["compatibility"]
                measured = measure(whole(), encode(args.kept / cell, queries, documents), right)
                row = {"model": model, "method": method, "texts": texts, "advice": found["advice"]} | measured
                kept.write_text(json.dumps(row))
                print(*printed, row, sep="\n", flush=True)
            rows += [json.loads(kept.read_text())] if kept.exists() else []
    table = pd.DataFrame(rows).round(4)
    table.to_csv(HERE / "advice.csv", index=False)
    print(table.to_string())


if __name__ == "__main__":
    main()

"""What does an index cost that is kept while another model encodes the queries? Ordered pairs of embedding models.

    python SHARED/data/debian_search.py DEBIAN en
    python studies/shrink/students.py MODELS SHARED_DATA ROOT DEBIAN/en.parquet KEPT [--names NAME ...]

`layerwise shrink OLD --student NEW` maps NEW into the space of OLD, from 6,000 sentences of WikiText-2, and again from
descriptions of Debian packages that are not searched. Each mapped model encodes queries for documents of OLD: 1,000
descriptions of packages among 5,000, and the questions of WikiQA. Beside it, NEW alone encodes both, as after an
index was made anew. students.csv gets one row per pair, texts and collection, with 95 % intervals by bootstrap over
queries.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from kept import add_rows
from numpy.typing import NDArray
from originals import original
from search import in_hash_order, vectors
from study import sentences

import layerwise

TABLE = Path(__file__).parent / "students.csv"
MODELS = ("paraphrase-minilm-l3-v2", "all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2")
QUERIES, DOCUMENTS, TEXTS, SAMPLES = 1000, 5000, 6000, 2000


class Collection(NamedTuple):
    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[list[int]]  # places of documents, for each query


def packages(table: pd.DataFrame) -> Collection:
    queries = table["query"].tolist()[:QUERIES]
    return Collection("Debian", queries, table.document.tolist()[:DOCUMENTS], [[place] for place in range(QUERIES)])


def wikiqa(root: Path) -> Collection:
    corpus, queries, answers = (
        pd.read_parquet(root / "WikiQARetrieval" / part / "test.parquet") for part in ("corpus", "queries", "default")
    )
    place_of = {identity: place for place, identity in enumerate(corpus["_id"])}
    right = answers[answers.score > 0].groupby("query-id")["corpus-id"].agg(list)
    asked = queries[queries["_id"].isin(right.index)]
    relevant = [[place_of[document] for document in right[query]] for query in asked["_id"]]
    return Collection("WikiQA", asked.text.tolist(), corpus.text.tolist(), relevant)


def reciprocal_ranks(queries: torch.Tensor, documents: torch.Tensor, relevant: Sequence[list[int]]) -> NDArray[Any]:
    """Of each query's first right document; documents as close as it count as before it."""
    found = []
    for row, right in zip(queries @ documents.mT, relevant, strict=True):
        found.append(1 / int((row >= row[right].max()).sum()))
    return np.array(found)


def interval(differences: NDArray[Any]) -> tuple[float, float, float]:
    samples = np.random.default_rng(0).integers(0, len(differences), (SAMPLES, len(differences)))
    low, high = np.quantile(differences[samples].mean(axis=1), [0.025, 0.975])
    return float(differences.mean()), float(low), float(high)


def row_of(old: Path, new: Path, mapped: Path, texts: str, searched: Collection, kept: Path) -> dict[str, Any]:
    """MRR of the old model, of mapped queries in its documents, and of the new model alone."""

    def encoded(folder: Path, role: str, given: list[str]) -> torch.Tensor:
        return vectors(folder, role, given, kept / "vectors")

    documents = encoded(old, "document", searched.documents)
    before = reciprocal_ranks(encoded(old, "query", searched.queries), documents, searched.relevant)
    index_kept = reciprocal_ranks(encoded(mapped, "query", searched.queries), documents, searched.relevant)
    anew = reciprocal_ranks(
        encoded(new, "query", searched.queries), encoded(new, "document", searched.documents), searched.relevant
    )
    shrunk = json.loads((mapped / "layerwise.json").read_text(encoding="utf-8"))["shrunk"]
    row: dict[str, Any] = {
        "old": old.name, "new": new.name, "texts": texts, "collection": searched.name,
        "queries": len(searched.queries), "documents": len(searched.documents), "map": shrunk["map"],
        "old mrr": before.mean(), "kept mrr": index_kept.mean(), "anew mrr": anew.mean(),
    }  # fmt: skip
    for name, gap in (("kept", index_kept - before), ("anew", anew - before), ("cost", anew - index_kept)):
        row |= dict(zip((f"{name} gap", f"{name} low", f"{name} high"), interval(gap), strict=True))
    row["advice"] = shrunk["compatibility"]["answer"]
    return {name: round(float(value), 4) if isinstance(value, float) else value for name, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "root", "debian", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--names", choices=MODELS, nargs="+", default=list(MODELS), help="of the models")
    args = parser.parse_args()
    table = in_hash_order(pd.read_parquet(args.debian))
    others = table.iloc[DOCUMENTS:]
    fitted_on: dict[str, dict[str, Any]] = {
        "sentences": {"data": sentences(args.data / "wikitext2" / "train.parquet", TEXTS)},
        "descriptions": {"data": None, "queries": others["query"].tolist()[: TEXTS // 2],
                         "documents": others.document.tolist()[: TEXTS // 2]},
    }  # fmt: skip
    collections = packages(table), wikiqa(args.root)
    folders = {name: original(name, args.models, args.kept) for name in args.names}
    for texts, given in fitted_on.items():
        for old, new in permutations(folders.values(), 2):
            mapped = args.kept / "mapped" / f"{old.name}-by-{new.name}-{texts}"
            if not mapped.exists():
                layerwise.shrink(
                    str(old), given["data"], mapped, **{name: part for name, part in given.items() if name != "data"},
                    student=str(new), work=args.kept / "students.work", progress=True,
                )  # fmt: skip
            rows = [row_of(old, new, mapped, texts, searched, args.kept) for searched in collections]
            add_rows(TABLE, pd.DataFrame(rows), ["old", "new", "texts", "collection"])
            for row in rows:
                print(" ".join(str(value) for value in row.values()), flush=True)


if __name__ == "__main__":
    main()

"""What does a cheaper model lose in search? Short descriptions of Debian packages search the long ones.

    python SHARED/data/debian_search.py DEBIAN en
    python studies/shrink/search.py DEBIAN/en.parquet VECTORS WHOLE SMALL [SMALL ...] [--documents 5000] [--rounded]

WHOLE and SMALL are folders of models; VECTORS keeps their vectors. Queries and documents are each encoded by the whole
model (old) or the small one (new). search.csv gets one row per small model and case, with the 95 % interval of the
difference from old queries in old documents, by bootstrap over queries. One row is BM25 alone, which needs `pip
install bm25s`.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from kept import add_rows, model_key
from numpy.typing import NDArray
from opened import ROUNDED, compute, opened

TABLE = Path(__file__).parent / "search.csv"
QUERIES, SAMPLES = 1000, 2000
CASES = {"new old": (1, 0), "old new": (0, 1), "new new": (1, 1)}  # queries, documents
Ranks = NDArray[np.int64]


def in_hash_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows in an order that depends on their ids alone."""
    keys = table.id.map(lambda identity: hashlib.blake2b(str(identity).encode(), digest_size=8).hexdigest())
    return table.loc[keys.sort_values(kind="stable").index]


def vectors(folder: Path, role: str, texts: list[str], kept: Path) -> torch.Tensor:
    """The vectors of a model, with its prompt for this role if it has one; read from disk if they are there."""
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()
    path = kept / f"{model_key(folder)}-{role}-{digest}.npy"
    if not path.is_file():
        model = opened(folder)
        encode = model.encode_query if role == "query" else model.encode_document
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False))
    return torch.from_numpy(np.load(path))


def ranks(queries: torch.Tensor, documents: torch.Tensor) -> Ranks:
    """The rank of each query's own document; documents as close as it count as before it."""
    found = []
    for start in range(0, len(queries), 100):
        close = queries[start : start + 100] @ documents.mT
        own = close[torch.arange(len(close)), torch.arange(start, start + len(close))]
        found.append((close >= own[:, None]).sum(dim=1))
    return torch.cat(found).numpy()


def bm25_ranks(queries: list[str], documents: list[str]) -> Ranks:
    import bm25s

    index = bm25s.BM25()
    index.index(bm25s.tokenize(documents, stopwords="en", show_progress=False), show_progress=False)
    found = []
    for place, query in enumerate(queries):
        words = bm25s.tokenize([query], stopwords="en", return_ids=False, show_progress=False)[0]
        scores = index.get_scores(words) if words else np.zeros(len(documents))
        found.append(int((scores >= scores[place]).sum()))
    return np.array(found)


def measures(found: Ranks) -> dict[str, NDArray[np.float64]]:
    """Per query, from 0 to 1."""
    first_ten = found <= 10
    return {"mrr": 1 / found, "recall": first_ten.astype(float), "ndcg": first_ten / np.log2(found + 1)}


def row_of(names: tuple[str, str, str], documents: int, found: Ranks, baseline: Ranks) -> dict[str, object]:
    row: dict[str, object] = dict(zip(("whole", "model", "case"), names, strict=True))
    row |= {"documents": documents, "queries": len(found)}
    generator = np.random.default_rng(0)
    samples = generator.integers(0, len(found), (SAMPLES, len(found)))
    for measure, values in measures(found).items():
        gap = values - measures(baseline)[measure]
        low, high = np.quantile(gap[samples].mean(axis=1), [0.025, 0.975])
        row |= {measure: values.mean(), f"{measure}_gap": gap.mean(), f"{measure}_low": low, f"{measure}_high": high}
    return {key: round(float(value), 4) if isinstance(value, float) else value for key, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("debian", "vectors", "whole"):
        parser.add_argument(name, type=Path)
    parser.add_argument("small", type=Path, nargs="+")
    parser.add_argument("--documents", type=int, help="how many; default: all")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--index-only", action="store_true", help="small models encode queries only: the first case")
    parser.add_argument("--rounded", action="store_true", help=ROUNDED)
    args = parser.parse_args()
    compute(rounded=args.rounded)
    table = in_hash_order(pd.read_parquet(args.debian)).iloc[: args.documents]
    queries, documents = table["query"].tolist()[:QUERIES], table.document.tolist()
    kept = args.vectors / "rounded" if args.rounded else args.vectors
    old = vectors(args.whole, "query", queries, kept), vectors(args.whole, "document", documents, kept)
    baseline = ranks(*old)
    whole, count = args.whole.name, len(documents)
    rows = [row_of((whole, "BM25", "-"), count, bm25_ranks(queries, documents), baseline),
            row_of((whole, whole, "old old"), count, baseline, baseline)]  # fmt: skip
    for small in args.small:
        new = [vectors(small, "query", queries, kept)]
        if not args.index_only:
            new.append(vectors(small, "document", documents, kept))
        for case, (query, document) in CASES.items():
            if document and args.index_only:
                continue
            if query != document and new[0].shape[1] != old[0].shape[1]:
                continue  # a model of another space
            found = ranks((old, new)[query][0], (old, new)[document][1])
            rows.append(row_of((whole, small.name, case), count, found, baseline))
    for row in rows:
        print(" ".join(f"{value}" for value in row.values()), flush=True)
    add_rows(args.table, pd.DataFrame(rows), ["whole", "model", "case", "documents"])


if __name__ == "__main__":
    main()

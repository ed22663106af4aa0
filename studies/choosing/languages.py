"""Do 256 pairs choose the model for German and French search? Short descriptions of Debian packages search long ones.

    python SHARED_DATA/debian_search.py DEBIAN de fr
    python studies/choosing/languages.py DEBIAN MODELS KEPT NAME [NAME ...] [--languages de fr] [--documents 5000]

languages.csv gets one row per language and model: nDCG@10 with the 95 % interval of its difference from the best model,
by bootstrap over queries, and the score of the pairs, which are of other packages.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import layerwise

sys.path.insert(0, str(Path(__file__).parents[1] / "shrink"))
from kept import add_rows  # noqa: E402
from originals import original  # noqa: E402
from search import QUERIES, SAMPLES, in_hash_order, measures, ranks, vectors  # noqa: E402

TABLE = Path(__file__).parent / "languages.csv"
PAIRS = 256


def ndcg(folder: Path, table: pd.DataFrame, kept: Path) -> np.ndarray:
    """Per query."""
    queries = vectors(folder, "query", table["query"].tolist()[:QUERIES], kept)
    return measures(ranks(queries, vectors(folder, "document", table.document.tolist(), kept)))["ndcg"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("debian", "models", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--languages", nargs="+", default=["de", "fr"])
    parser.add_argument("--documents", type=int, default=5000)
    args = parser.parse_args()
    folders = {name: original(name, args.models, args.kept) for name in args.names}
    for language in args.languages:
        table = in_hash_order(pd.read_parquet(args.debian / f"{language}.parquet"))
        others = table.iloc[args.documents : args.documents + PAIRS]
        pairs = list(zip(others["query"], others.document, strict=True))
        found = layerwise.pick([str(folder) for folder in folders.values()], pairs=pairs, max_length=256, progress=True)
        places = {row.name: (place, row) for place, row in enumerate(found.rows, start=1)}
        scores = {name: ndcg(folder, table.iloc[: args.documents], args.kept) for name, folder in folders.items()}
        best = max(scores.values(), key=np.mean)
        draws = np.random.default_rng(0).integers(0, len(best), (SAMPLES, len(best)))
        rows = []
        for name, folder in folders.items():
            place, row = places[str(folder)]
            low, high = np.quantile((scores[name] - best)[draws].mean(axis=1), [0.025, 0.975])
            rows.append({
                "language": language, "models": len(folders), "model": name, "place": place,
                "evidence_score": round(row.score.mean, 3), "recipe": row.recipe, "dropped_after": row.dropped_after,
                "documents": args.documents, "score": round(float(scores[name].mean()), 4),
                "from_best": round(float((scores[name] - best).mean()), 4),
                "low": round(float(low), 4), "high": round(float(high), 4),
            })  # fmt: skip
            print(*rows[-1].values(), flush=True)
        add_rows(TABLE, pd.DataFrame(rows), ["language", "models", "model", "documents"])


if __name__ == "__main__":
    main()

"""Makes every cheap way of the protocol's models: those of `layerwise shrink` without a method, and two of others.

    python studies/shrink/ways.py MODELS SHARED_DATA KEPT MODEL

KEPT/ways/MODEL gets a folder per way: blocks, static and int8 by the product, from 12,000 sentences of WikiText-2; and
static models by model2vec and tokenlearn, which need `pip install model2vec[distill] tokenlearn`. ways.csv gets sizes,
times relative to the whole model, and what the product recommended. Then losses.py and search.py with `--table
ways_losses.csv` and `--table ways_search.csv` score the folders, and ways_table.py writes table and picture.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from cheaper import SENTENCES
from kept import add_rows
from originals import original
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from study import sentences

import layerwise

TABLE = Path(__file__).parent / "ways.csv"
OTHERS = ("model2vec", "tokenlearn")


def of_product(source: Path, texts: list[str], kept: Path) -> pd.DataFrame:
    """One row per way that the product makes, with what it says of each."""
    found = layerwise.shrink(
        str(source), texts, kept / "ways" / source.name, work=kept / "cheaper" / f"{source.name}.work", progress=True
    )
    rows = []
    for way in found.ways:
        search = (way.compatibility or {}).get("cases", {}).get("new_old", {}).get("loss", {})
        times = {
            f"{length} {part}": getattr(time, part)
            for length, time in way.times.items() for part in ("ratio", "low", "high")
        }  # fmt: skip
        rows.append({
            "model": source.name, "way": way.name, "megabytes": way.size / 1e6, **times,
            "expected loss": search.get("mean"), "recommended": way.name == (found.recommended or "whole"),
        })  # fmt: skip
    return pd.DataFrame(rows).round(4)


def of_model2vec(source: Path) -> SentenceTransformer:
    """What model2vec makes of the model, with its default settings."""
    from model2vec.distill import distill

    return as_sentence_transformer(distill(str(source), pca_dims=256, device="cpu", quantize_to="float32"))


def of_tokenlearn(source: Path, texts: list[str]) -> SentenceTransformer:
    """What tokenlearn's three steps make of it, from the same sentences, with their default settings."""
    from model2vec.distill import distill
    from tokenlearn.featurize import featurize
    from tokenlearn.train import train_model
    from tokenlearn.utils import collect_means_and_texts, create_vocab

    with tempfile.TemporaryDirectory() as folder:
        rows = ({"text": text} for text in texts)
        featurize(rows, SentenceTransformer(str(source), device="cpu"), folder, 10 * len(texts), 32, "text")
        read, means = collect_means_and_texts(sorted(Path(folder).glob("*.json")))
    start = distill(
        str(source), vocabulary=create_vocab(read), pca_dims=256, device="cpu", quantize_to="float32"
    )  # fmt: skip
    return as_sentence_transformer(train_model(start, read, np.asarray(means), pca_dims=256))


def as_sentence_transformer(made: object) -> SentenceTransformer:
    rows = StaticEmbedding._fold_model2vec_weights(
        made.embedding, getattr(made, "token_mapping", None), getattr(made, "weights", None)
    )
    return SentenceTransformer(
        modules=[StaticEmbedding(made.tokenizer, embedding_weights=rows.float()), Normalize()], device="cpu"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "data", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("model")
    args = parser.parse_args()
    source = original(args.model, args.models, args.kept)
    texts = sentences(args.data / "wikitext2" / "train.parquet", SENTENCES)
    add_rows(TABLE, of_product(source, texts, args.kept), ["model", "way"])
    for name in OTHERS:
        folder = args.kept / "ways" / source.name / name
        if not folder.exists():
            made = of_model2vec(source) if name == "model2vec" else of_tokenlearn(source, texts)
            made.save(str(folder), create_model_card=False)
        print(folder, flush=True)


if __name__ == "__main__":
    main()

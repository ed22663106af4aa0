"""The examples of the study: a few per class to train on, at most 500 to test on, both in the order of a hash."""

import hashlib
from pathlib import Path

import pandas as pd

LABELS = {
    "banking77": "label_text",
    "emotion": "label_text",
    "trec6": "label_text",
    "clinc150": "label_text",
    "ag_news": "label",
}
TEST = 500
MOST = 64  # examples per class; a text that trains here is tested nowhere


def in_hash_order(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    keys = [hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).hexdigest() for text in table.text]
    return table.assign(key=keys).sort_values("key").drop_duplicates("text").drop(columns="key")


def examples(data: Path, name: str, shots: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training and test examples with the columns id, text and label. Fewer shots are a part of more."""
    train, test = (
        pd.read_parquet(data / name / f"{part}.parquet").rename(columns={LABELS[name]: "target"})
        for part in ("train", "test")
    )
    train = in_hash_order(train, seed).groupby("target").head(MOST)
    test = in_hash_order(test[~test.text.isin(train.text)], seed=0).head(TEST)  # the same for most seeds
    parts = train.groupby("target").head(shots), test
    return tuple(  # type: ignore[return-value]
        pd.DataFrame({"id": part.index.astype(str), "text": part.text, "label": [f"c{t}" for t in part.target]})
        for part in parts
    )

"""What would a smaller vocabulary save, and how many texts would be read as before?

    python studies/shrink/vocabulary.py SHARED_DATA DEBIAN/en.parquet MODEL [MODEL ...]

Kept: the tokens of some texts, single characters and bytes, and special tokens. A text of which every token is kept has
the same tokens, and so the same vector to the bit. vocabulary.csv gets one row per model, kind and number of texts,
with the share of 3,000 other texts of the same kind that are read as before. No model runs.
"""

import argparse
import json
from pathlib import Path

import pandas as pd
from kept import add_rows
from safetensors import safe_open
from search import in_hash_order
from study import sentences
from transformers import AutoTokenizer

TABLE = Path(__file__).parent / "vocabulary.csv"
COUNTS, OTHERS = (1000, 10000, 30000), 3000


def embedding_bytes(folder: Path) -> tuple[int, int, int]:
    """Bytes of all weights, those of token embeddings, and the rows of the latter."""
    whole, found, rows = 0, 0, 0
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            for name in file.keys():
                part = file.get_slice(name)
                size = {"F32": 4, "F16": 2, "BF16": 2}.get(part.get_dtype(), 8)
                for length in part.get_shape():
                    size *= length
                whole += size
                if name.endswith(("word_embeddings.weight", "embed_tokens.weight")):
                    found, rows = size, part.get_shape()[0]
    return whole, found, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "debian"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    args = parser.parse_args()
    table = in_hash_order(pd.read_parquet(args.debian))
    kinds = {
        "sentences of WikiText-2": sentences(args.data / "wikitext2" / "train.parquet", max(COUNTS) + OTHERS),
        "descriptions of packages": [text for row in zip(table["query"], table.document, strict=True) for text in row],
    }
    for folder in args.models:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        whole, of_tokens, rows = embedding_bytes(folder)
        always = set(tokenizer.all_special_ids)
        always |= {i for name, i in tokenizer.get_vocab().items() if len(name.removeprefix("##").strip("▁")) <= 1}
        always |= {i for name, i in tokenizer.get_vocab().items() if name.startswith("<0x")}
        for kind, texts in kinds.items():
            read = [set(ids) for ids in tokenizer(texts[: max(COUNTS) + OTHERS], truncation=True)["input_ids"]]
            for count in COUNTS:
                kept = always.union(*read[:count])
                others = read[max(COUNTS) : max(COUNTS) + OTHERS]
                row = {
                    "model": folder.name, "texts": kind, "count": count, "vocabulary": rows, "kept": len(kept),
                    "megabytes": round(whole / 1e6, 1),
                    "megabytes left": round((whole - of_tokens * (1 - len(kept) / rows)) / 1e6, 1),
                    "read as before": round(sum(ids <= kept for ids in others) / len(others), 4),
                }  # fmt: skip
                add_rows(TABLE, pd.DataFrame([row]), ["model", "texts", "count"])
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

"""Embedding models as their authors ship them: pooling, prompts and the longest input are written beside the weights.

python studies/shrink/originals.py MODELS KEPT NAME [NAME ...]
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

E5 = {"query": "query: ", "document": "passage: "}
NOMIC = {
    "query": "search_query: ", "document": "search_document: ", "clustering": "clustering: ",
    "classification": "classification: ",
}  # fmt: skip


@dataclass(frozen=True)
class Original:
    """How a model reads a text and pools its hidden states, by its card."""

    length: int
    pooling: str = "mean"
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None  # for a text that is neither a query nor a document
    unit: bool = True


ORIGINALS = {
    "all-minilm-l6-v2": Original(256),
    "gte-small": Original(512),
    "all-mpnet-base-v2": Original(384),
    "paraphrase-minilm-l3-v2": Original(128),
    "bge-small-en-v1.5": Original(512, "cls"),
    "e5-small": Original(512, prompts=E5, default_prompt="query"),
    "multilingual-e5-small": Original(512, prompts=E5, default_prompt="query"),
    "nomic-embed-text-v1.5": Original(2048, prompts=NOMIC, default_prompt="classification"),
    "m3e-small": Original(512, unit=False),
}


def original(name: str, models: Path, kept: Path) -> Path:
    """The folder of a model. One that lacks its modules is completed in KEPT."""
    if (models / name / "modules.json").is_file():
        return models / name
    folder = kept / "originals" / name
    if not folder.exists():
        known = ORIGINALS[name]
        first = Transformer(str(models / name), max_seq_length=known.length)
        modules = [
            first,
            Pooling(first.get_embedding_dimension(), known.pooling),
            *([Normalize()] if known.unit else []),
        ]
        model = SentenceTransformer(
            modules=modules, device="cpu", prompts=dict(known.prompts), default_prompt_name=known.default_prompt
        )
        model.save(str(folder), create_model_card=False)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("models", "kept"):
        parser.add_argument(name, type=Path)
    parser.add_argument("names", nargs="+", choices=list(ORIGINALS))
    args = parser.parse_args()
    for name in args.names:
        print(original(name, args.models, args.kept))


if __name__ == "__main__":
    main()

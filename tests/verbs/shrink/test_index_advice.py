"""What shrink says about an index, against what sentence-transformers and NumPy measure on other texts, in the three
directions: it can be kept, it must be made anew, and neither helps."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from families import make_model, make_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import layerwise

LARGEST_LOSS = 0.02  # of the MRR, as docs/shrink.md says


def ship(folder: Any, model: Any) -> str:
    inner = folder.with_name(f"{folder.name}-inner")
    model.save_pretrained(inner)
    make_tokenizer().save_pretrained(inner)
    modules = [Transformer(str(inner), max_seq_length=32), Pooling(model.config.hidden_size, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    return str(folder)


def other_model() -> Any:
    """It tells words apart by other directions, as many as the original has, and minds no positions.

    A linear map knows a third of 89 words from 32 directions, so it cannot give the original's vectors.
    """
    model = make_model("bert")
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight[:] = torch.randn(weight.shape, generator=torch.Generator().manual_seed(7))
        model.embeddings.position_embeddings.weight.zero_()
    return model


def blind_model() -> Any:
    """It knows two kinds of words only."""
    model = make_model("bert")
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight[:] = weight[torch.arange(len(weight)) % 2 + 4]
    return model


def pairs_of(seed: int, count: int) -> list[tuple[str, str]]:
    """A query has half of the words of its document."""
    random = np.random.default_rng(seed)
    documents = [random.permutation(89)[:12] for _ in range(count)]
    return [
        tuple(" ".join(f"w{k}" for k in words) for words in (random.permutation(document)[:6], document))
        for document in documents
    ]


def reciprocal_ranks(queries: Any, documents: Any) -> Any:
    queries, documents = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, documents))
    close = queries @ documents.T
    return np.array([1 / (row >= row[i]).sum() for i, row in enumerate(close)])


@pytest.mark.parametrize(
    ("student", "advice"), [(make_model, "keep"), (other_model, "re-embed"), (blind_model, "original")]
)
def test_the_advice_is_what_a_search_with_other_texts_shows(student, advice, tmp_path):
    old = ship(tmp_path / "old", make_model("bert"))
    new = tmp_path / "new"
    if advice == "keep":  # the same vectors in other coordinates
        from layerwise.models.modules import linear_module

        turn = torch.nn.init.orthogonal_(torch.empty(32, 32), generator=torch.Generator().manual_seed(1))
        modules = [
            *SentenceTransformer(old, device="cpu").children(),
            linear_module(turn, torch.zeros(32), torch.float32),
        ]
        SentenceTransformer(modules=modules, device="cpu").save(str(new), create_model_card=False)
    else:
        ship(new, student())
    layerwise.shrink(old, None, tmp_path / "mapped", student=str(new), pairs=pairs_of(1, 300))
    found = json.loads((tmp_path / "mapped" / "layerwise.json").read_text())["shrunk"]["compatibility"]

    sides = [list(side) for side in zip(*pairs_of(2, 200), strict=True)]
    (old_queries, old_documents), (mapped, _), (own_queries, own_documents) = (
        [SentenceTransformer(str(folder), device="cpu").encode(side, show_progress_bar=False) for side in sides]
        for folder in (old, tmp_path / "mapped", new)
    )
    whole = reciprocal_ranks(old_queries, old_documents).mean()
    in_old_index = whole - reciprocal_ranks(mapped, old_documents).mean()
    made_anew = whole - reciprocal_ranks(own_queries, own_documents).mean()
    assert found["advice"] == advice, found["answer"]
    assert whole > 0.2, "the original finds documents"
    expected = "keep" if in_old_index <= LARGEST_LOSS else "re-embed" if made_anew <= LARGEST_LOSS else "original"
    assert expected == advice, (whole, in_old_index, made_anew)

"""What pick recommends, against what plain transformers and a loop measure on other pairs: models made so that the last
layer is best, that no layer is better, and that the last layer has lost what the others know."""

from typing import Any

import numpy as np
import pytest
import reference
import torch
from families import make_tokenizer
from transformers import LlamaConfig, LlamaModel

import layerwise

WORDS, WIDTH, MARGIN = 30, 128, 2.0
# What the last block adds to a word: the direction of its meaning, nothing, or the same for all words.
BLOCKS = {"gives synonyms one meaning": 1.0, "does nothing": 0.0, "forgets all words": 1e8}


def made_model(block: str) -> Any:
    """Each word has a direction of its own at layers 0 and 1. w0 and w30, w1 and w31, ... are synonyms."""
    config = LlamaConfig(
        vocab_size=97, hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1.0 if "norm" in name else 0.0)
        model.embed_tokens.weight[:97, :97] = torch.eye(97)
        mlp = model.layers[1].mlp
        mlp.gate_proj.weight[:], mlp.up_proj.weight[:] = torch.eye(WIDTH), torch.eye(WIDTH)
        for word in range(2 * WORDS):  # the first four tokens are special
            meaning = word % WORDS if block.startswith("gives") else 0
            mlp.down_proj.weight[97 + meaning, 4 + word] = BLOCKS[block]
    return model


def pairs_of(synonyms: bool, seed: int, count: int = 40) -> list[tuple[str, str]]:
    """Four of five words of a query are in its document, as themselves or as synonyms."""
    random, pairs = np.random.default_rng(seed), []
    for _ in range(count):
        drawn = random.permutation(WORDS)[:6]
        query, document = drawn[:5], random.permutation(drawn[1:]) + WORDS * synonyms
        pairs.append(tuple(" ".join(f"w{k}" for k in words) for words in (query, document)))
    return pairs


def measured(model: Any, recipe: Any, pairs: list[tuple[str, str]]) -> float:
    """100 times the mean reciprocal rank of the partner in both directions; ties count as before it."""
    tokenizer = make_tokenizer()
    sides = []
    for texts in zip(*pairs, strict=True):
        read = [reference.read_text(model, tokenizer, "layers", "norm", text, 64) for text in texts]
        rows = [reference.vector(r, recipe.layer, recipe.norm, recipe.tokens, recipe.pooling, WIDTH) for r in read]
        sides.append(np.stack([row / np.linalg.norm(row) for row in rows]))
    found = []
    for close in (sides[0] @ sides[1].T, sides[1] @ sides[0].T):
        found += [1 / sum(other >= row[i] for other in row) for i, row in enumerate(close.round(12))]
    return 100 * float(np.mean(found))


@pytest.mark.parametrize(
    ("block", "synonyms", "keeps"),
    [("gives synonyms one meaning", True, True), ("does nothing", False, True), ("forgets all words", False, False)],
)
def test_the_recommended_layer_is_the_one_that_a_search_on_other_pairs_prefers(block, synonyms, keeps):
    model = made_model(block)
    found = layerwise.pick((model, make_tokenizer()), pairs=pairs_of(synonyms, 1), layer_only=True, max_length=32)
    others = pairs_of(synonyms, 2)
    last = measured(model, found.last, others)
    below = [measured(model, layerwise.Recipe(layer), others) for layer in (0, 1)]
    assert found.keep_last == keeps
    if keeps:
        assert found.recipe.layer == 2 and max(below) <= last + MARGIN, "no other layer is better by the margin"
        assert last > 80
    else:
        assert measured(model, found.recipe, others) == max(below) > last + 50

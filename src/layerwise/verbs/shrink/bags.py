"""Texts as bags of tokens, which is all that a static model reads; how much each token counts; and added words."""

import copy
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.verbs.shrink.options import TokenWeights

SIF_SCALE = 1e-3  # tokens that are more frequent than this count for less than half
ZIPF_SCALE = 1e-4  # the same for frequencies that follow Zipf's law
FEWEST_USES = 3  # of a word that is added to the vocabulary
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Bags:
    """The token ids of texts, one after another, and how many each text has."""

    ids: Tensor  # (M,)
    lengths: Tensor  # (N,)
    vocabulary: int

    @cached_property
    def shares(self) -> Tensor:
        """The matrix (N, vocabulary) that takes one row per token to the mean of each text; sparse."""
        texts = torch.repeat_interleave(torch.arange(len(self.lengths)), self.lengths)
        share = (1 / self.lengths.clamp(min=1).float()).repeat_interleave(self.lengths)
        size = (len(self.lengths), self.vocabulary)
        places = torch.stack([texts, self.ids])
        shares: Tensor = torch.sparse_coo_tensor(places, share, size, check_invariants=False).coalesce()
        return shares

    @cached_property
    def transposed(self) -> Tensor:
        """The transposed matrix, in the order that makes products with it fast."""
        transposed: Tensor = self.shares.t().coalesce()
        return transposed

    def means(self, rows: Tensor) -> Tensor:
        """The mean (N, E) of the rows (vocabulary, E) of each text's tokens; 0 for a text without tokens."""
        means: Tensor = torch.sparse.mm(self.shares, rows)
        return means

    def token_counts(self) -> Tensor:
        """How often each token occurs."""
        return torch.bincount(self.ids, minlength=self.vocabulary)

    def text_counts(self) -> Tensor:
        """In how many texts each token occurs."""
        return torch.bincount(self.shares.indices()[1], minlength=self.vocabulary)


def bare_tokenizer(tokenizer: Any, name: str) -> Any:
    """A copy of a fast tokenizer as the tokenizers package has it, without truncation and padding."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"the tokenizer of {name} is written in Python, and a static model needs a fast one; save a tokenizer.json "
            "beside the model, if its authors publish one"
        )
    backend = copy.deepcopy(backend)
    backend.no_truncation()
    backend.no_padding()
    return backend


def token_bags(tokenizer: Any, texts: Sequence[str]) -> Bags:
    """The tokens of each text, without special tokens."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
    flat = torch.tensor([token for one in ids for token in one], dtype=torch.long)
    return Bags(flat, torch.tensor([len(one) for one in ids]), vocabulary_size(tokenizer))


def vocabulary_size(tokenizer: Any) -> int:
    """How many rows ids of this tokenizer need; some ids may have no token."""
    return 1 + int(max(tokenizer.get_vocab(with_added_tokens=True).values()))


def token_weights(kind: TokenWeights, vocabulary: int, bags: Bags | None = None) -> Tensor:
    """How much each token counts in the mean (vocabulary,); `sif` and `idf` are counted in the bags of texts.

    `zipf` takes the place of a token in the vocabulary as its rank, since most vocabularies are ordered by frequency.
    """
    if kind == "none":
        return torch.ones(vocabulary)
    if kind == "zipf":
        frequency = 1 / torch.arange(2, vocabulary + 2, dtype=torch.float64)
        return (ZIPF_SCALE / (ZIPF_SCALE + frequency / frequency.sum())).float()
    assert bags is not None, "weights that are counted need texts"
    if kind == "idf":
        return ((1 + len(bags.lengths)) / (1 + bags.text_counts().double())).log().add(1).float()
    counts = bags.token_counts().double() + 0.5  # half a use of a token that does not occur
    return (SIF_SCALE / (SIF_SCALE + counts / counts.sum())).float()


def frequent_words(tokenizer: Any, texts: Sequence[str], count: int) -> list[str]:
    """The most frequent words that the tokenizer divides, as it normalises them; the most frequent first."""
    normalizer = tokenizer.normalizer
    uses: Counter[str] = Counter()
    for text in texts:
        uses.update(WORD.findall(normalizer.normalize_str(text) if normalizer else text))
    often = [word for word, used in uses.most_common() if used >= FEWEST_USES and not word.isdigit()]
    pieces = tokenizer.encode_batch(often, add_special_tokens=False)
    return [word for word, encoding in zip(often, pieces, strict=True) if len(encoding.ids) > 1][:count]


def add_words(tokenizer: Any, words: Sequence[str]) -> None:
    """Adds whole words to the vocabulary of the tokenizer, each with an id of its own at the end."""
    from tokenizers import AddedToken

    tokenizer.add_tokens([AddedToken(word, single_word=True, normalized=True) for word in words])

"""The text processor: tokenizes, makes views of the text and token-level stress, pads on the right."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from layerwise.inputs.perturbations.changes import UNCHANGED, Changes, with_views
from layerwise.inputs.perturbations.text import perturb_text
from layerwise.inputs.perturbations.tokens import TOKEN_STRESS, Tokens, Vocabulary, stressed
from layerwise.inputs.processor import Masks, Prepared, prepared
from layerwise.inputs.source import Example, Payload
from layerwise.inputs.tables import require_whole_characters
from layerwise.inputs.tokenizing import encode_texts, tokens_in


@dataclass(frozen=True)
class TextProcessor:
    """A tokenizer as a Processor. A view of an example is its token ids."""

    tokenizer: Any

    @property
    def stresses(self) -> Collection[str]:
        return TOKEN_STRESS

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(self.tokenizer.all_special_ids)

    def prepare(
        self, examples: Sequence[Example], max_length: int, changes: Changes = UNCHANGED
    ) -> list[Prepared[Tokens]]:
        for example in examples:
            require_whole_characters(example.text, f"example {example.id}")
        texts = [text for e in examples for text in with_views(e.text, perturb_text, changes, e.id)]
        found = iter(encode_texts(self.tokenizer, texts, max_length))
        made = []
        for example in examples:
            (original, cut), *others = [next(found) for _ in range(1 + changes.views)]
            views = (original, *(ids for ids, _ in others))
            if changes.stress is not None:
                views = (self.stressed(original, changes, example.id),)
            made.append(prepared(example, views, [len(ids) for ids in views], cut=cut))
        return made

    def stressed(self, ids: Tokens, changes: Changes, example_id: str) -> Tokens:
        assert changes.stress is not None
        vocabulary = Vocabulary(len(self.tokenizer), self.special_ids)
        return stressed(ids, changes.stress.kind, changes.stress.level, vocabulary, changes.seed, example_id)

    def collate(self, group: Sequence[Prepared[Tokens]]) -> Mapping[str, Tensor]:
        rows, longest = [ids for example in group for ids in example.views], max(e.longest for e in group)
        padded = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        real = torch.zeros(padded.shape, dtype=torch.int64)
        for i, ids in enumerate(rows):
            padded[i, : len(ids)] = torch.tensor(ids)
            real[i, : len(ids)] = 1
        return {"input_ids": padded, "attention_mask": real}

    def masks(self, group: Sequence[Prepared[Tokens]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        ids, real = inputs["input_ids"], inputs["attention_mask"].bool()  # (B * V, T)
        special = torch.tensor(sorted(self.special_ids), dtype=ids.dtype, device=ids.device)
        shape = (len(group), -1, ids.shape[-1])
        return Masks(real.view(shape), (torch.isin(ids, special) & real).view(shape))

    def size(self, payload: Payload) -> float:
        return tokens_in(self.tokenizer, payload) if isinstance(payload, str) else math.inf

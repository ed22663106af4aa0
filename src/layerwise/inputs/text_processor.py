"""The text processor: tokenizes, makes views of the text and token-level stress, pads on the right."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.inputs.perturbations.changes import NO_VIEWS, ViewPlan, with_views
from layerwise.inputs.perturbations.text import perturb_text
from layerwise.inputs.perturbations.tokens import TOKEN_STRESS, Tokens, Vocabulary, apply_stress
from layerwise.inputs.processor import Masks, Prepared, make_prepared
from layerwise.inputs.source import Example, Payload, TaggedWords
from layerwise.inputs.tables import require_no_surrogates
from layerwise.inputs.templating import text_before, with_template
from layerwise.inputs.tokenizing import added_ids, count_tokens, encode_texts


@dataclass(frozen=True)
class TextProcessor:
    """A tokenizer as a Processor. A view of an example is its token ids, with the template around each text."""

    tokenizer: Any
    template: str = ""

    @property
    def stress_kinds(self) -> Collection[str]:
        return TOKEN_STRESS

    def prepare(
        self, examples: Sequence[Example], max_length: int, view_plan: ViewPlan = NO_VIEWS
    ) -> list[Prepared[Tokens]]:
        for example in examples:
            require_no_surrogates(example.text, f"example {example.id}")
        texts = [text for e in examples for text in with_views(e.text, perturb_text, view_plan, e.id)]
        tokenizer, before = with_template(self.tokenizer, self.template), text_before(self.template)
        encodings = iter(encode_texts(tokenizer, [before + text for text in texts], max_length))
        results = []
        for example in examples:
            (original, truncated), *others = [next(encodings) for _ in range(1 + view_plan.views)]
            views = (original, *(ids for ids, _ in others))
            if view_plan.stress is not None:
                views = (self.apply_stress(original, view_plan, example.id),)
            sizes = [max(1, len(ids)) for ids in views]  # the model needs a position even if a text has no tokens
            results.append(make_prepared(example, views, sizes, truncated=truncated))
        return results

    def apply_stress(self, ids: Tokens, view_plan: ViewPlan, example_id: str) -> Tokens:
        assert view_plan.stress is not None
        if not ids:
            return ids
        vocabulary = Vocabulary(len(self.tokenizer), frozenset(self.tokenizer.all_special_ids))
        return apply_stress(ids, view_plan.stress.kind, view_plan.stress.level, vocabulary, view_plan.seed, example_id)

    def collate(self, group: Sequence[Prepared[Tokens]]) -> Mapping[str, Tensor]:
        rows, max_size = [ids for example in group for ids in example.views], max(e.max_size for e in group)
        padded = torch.full((len(rows), max_size), self.tokenizer.pad_token_id)
        real = torch.zeros(padded.shape, dtype=torch.int64)
        for i, ids in enumerate(rows):
            padded[i, : len(ids)] = torch.tensor(ids, dtype=padded.dtype)
            real[i, : max(1, len(ids))] = 1  # attention to no position at all would be undefined
        return {"input_ids": padded, "attention_mask": real}

    def masks(self, group: Sequence[Prepared[Tokens]], inputs: Mapping[str, Tensor], positions: int) -> Masks:
        ids, added = inputs["input_ids"], added_ids(self.tokenizer)  # (B * V, T)
        lengths = torch.tensor([len(view) for example in group for view in example.views], device=ids.device)
        real = torch.arange(ids.shape[-1], device=ids.device) < lengths[:, None]
        special = torch.isin(ids, torch.tensor(sorted(added.special), dtype=ids.dtype, device=ids.device))
        opening = ids == (-1 if added.opening is None else added.opening)
        shape = (len(group), -1, ids.shape[-1])
        return Masks(real.view(shape), (special & real).view(shape), opening=(opening & real).view(shape))

    def size(self, payload: Payload) -> float:
        text = payload.text if isinstance(payload, TaggedWords) else payload
        return count_tokens(self.tokenizer, text) if isinstance(text, str) else math.inf

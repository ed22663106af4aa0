"""Batches of texts of similar length: a batch is as long as its longest text, and the rest of it is wasted work."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from sentence_transformers.base.sampler import DefaultBatchSampler

BATCHES_IN_A_POOL = 50  # texts are sorted within pools of so many batches, so that batches differ between epochs


def similar_length_batches(lengths: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """Every text once, in batches of similar length, in an order that depends only on the seed."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(lengths), generator=generator).tolist()
    batches = []
    for start in range(0, len(order), BATCHES_IN_A_POOL * batch_size):
        pool = sorted(order[start : start + BATCHES_IN_A_POOL * batch_size], key=lambda place: lengths[place])
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


class SimilarLengthSampler(DefaultBatchSampler):
    """For the trainer: the batches of an epoch depend on seed and epoch alone, so that a resumed training has them too.

    The number of characters stands for that of tokens: nothing has to be tokenized beforehand.
    """

    def __init__(self, dataset: Any, batch_size: int, drop_last: bool, seed: int = 0, **others: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, seed=seed, **others)
        self.lengths = [len(text) for text in dataset["text"]]

    def __iter__(self) -> Iterator[list[int]]:
        yield from similar_length_batches(self.lengths, self.batch_size, self.seed + self.epoch)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

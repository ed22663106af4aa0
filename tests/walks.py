"""A toy modality: walks of four numbers per step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from transformers import PretrainedConfig

from layerwise.inputs.perturbations.changes import NO_VIEWS, with_views
from layerwise.inputs.processor import Masks, make_prepared

STEPS, DEPTH, WIDTH = 4, 3, 11


def add_noise(walk, random, amount):
    noise = np.random.default_rng(random.getrandbits(64)).normal(size=walk.shape)
    return walk + amount * noise.astype(walk.dtype)


class Block(nn.Module):
    """Every position sees the mean of those before it, so that padding at the end changes nothing."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden):
        before = hidden.cumsum(1) / torch.arange(1, hidden.shape[1] + 1)[:, None]
        return hidden + torch.tanh(self.mix(before))


class Walker(nn.Module):
    """Takes `values` (B, T, 4) and puts a class position before them."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.config = PretrainedConfig(num_hidden_layers=DEPTH, hidden_size=WIDTH)
        self.start, self.embed = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Linear(STEPS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))

    def forward(self, values):
        hidden = torch.cat([self.start.expand(len(values), 1, -1), self.embed(values)], 1)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


@dataclass(frozen=True)
class WalkProcessor:
    scale: float = 1.0
    stress_kinds = ()

    def identity(self):
        return f"walks times {self.scale}"

    def prepare(self, examples, max_length, changes=NO_VIEWS):
        made = []
        for example in examples:
            views = [view[: max_length - 1] for view in with_views(example.payload, add_noise, changes, example.id)]
            cut = len(example.payload) > max_length - 1
            made.append(make_prepared(example, tuple(views), [1 + len(view) for view in views], truncated=cut))
        return made

    def collate(self, group):
        walks = [torch.from_numpy(view) for example in group for view in example.views]
        return {"values": self.scale * nn.utils.rnn.pad_sequence(walks, batch_first=True)}

    def masks(self, group, inputs, positions):
        sizes = torch.tensor([example.sizes for example in group])[..., None]  # (B, V, 1)
        real = torch.arange(positions) < sizes
        return Masks(real, real & (torch.arange(positions) == 0))

    def size(self, payload):
        return 1 + len(payload)

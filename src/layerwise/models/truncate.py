"""Truncates a model to its first blocks and updates its config."""

import copy
from typing import Any

from torch import nn

from layerwise.models.anatomy import Anatomy, find_anatomy
from layerwise.models.families.configs import cut_config


def cut_blocks(module: nn.Module, keep: int) -> Any:
    """A copy of the model with only its first `keep` blocks and its own config."""
    whole: Anatomy = find_anatomy(module, module.config)
    owner_path, _, name = whole.path.rpartition(".")
    owner = module.get_submodule(owner_path)
    blocks = getattr(owner, name)
    try:
        if not whole.shared:  # shared blocks are not removed, only called less often
            setattr(owner, name, nn.ModuleList(list(blocks)[:keep]))
        cut = copy.deepcopy(module)  # copies only the remaining blocks
    finally:
        setattr(owner, name, blocks)
    cut_config(cut.config, keep)
    return cut

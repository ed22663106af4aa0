"""Copies of a model with only some of its blocks, and a config to match."""

import copy
from collections.abc import Sequence
from typing import Any

from torch import nn

from layerwise.models.families.configs import select_config_blocks
from layerwise.models.find_blocks import ModelStructure, find_structure


def truncate_blocks(module: nn.Module, block_count: int) -> Any:
    """A copy of the model with only its first `block_count` blocks and its own config."""
    return keep_blocks(module, range(block_count))


def keep_blocks(module: nn.Module, kept: Sequence[int]) -> Any:
    """A copy of the model with only these blocks, counted from 0, and its own config."""
    structure: ModelStructure = find_structure(module, module.config)
    owner_path, _, name = structure.path.rpartition(".")
    owner = module.get_submodule(owner_path)
    blocks = getattr(owner, name)
    try:
        if not structure.shares_blocks:  # shared blocks are not removed, only called less often
            setattr(owner, name, nn.ModuleList(block for i, block in enumerate(blocks) if i in kept))
        truncated = copy.deepcopy(module)  # copies only the remaining blocks
    finally:
        setattr(owner, name, blocks)
    select_config_blocks(truncated.config, kept)
    return truncated

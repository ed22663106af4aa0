"""Truncates a model to its first blocks and updates its config."""

import copy
from typing import Any

from torch import nn

from layerwise.models.anatomy import ModelStructure, find_structure
from layerwise.models.families.configs import truncate_config


def truncate_blocks(module: nn.Module, block_count: int) -> Any:
    """A copy of the model with only its first `block_count` blocks and its own config."""
    structure: ModelStructure = find_structure(module, module.config)
    owner_path, _, name = structure.path.rpartition(".")
    owner = module.get_submodule(owner_path)
    blocks = getattr(owner, name)
    try:
        if not structure.shares_blocks:  # shared blocks are not removed, only called less often
            setattr(owner, name, nn.ModuleList(list(blocks)[:block_count]))
        truncated = copy.deepcopy(module)  # copies only the remaining blocks
    finally:
        setattr(owner, name, blocks)
    truncate_config(truncated.config, block_count)
    return truncated

"""Truncate: a model with its upper blocks cut off, its config saying so."""

import copy
from typing import Any

from torch import nn

from layerwise.models.anatomy import Anatomy, find_anatomy
from layerwise.models.families.configs import cut_config


def cut_blocks(module: nn.Module, keep: int) -> Any:
    """A copy of the model with only its first `keep` blocks; the copy shares no config with the original."""
    whole: Anatomy = find_anatomy(module, module.config)
    owner_path, _, name = whole.path.rpartition(".")
    owner = module.get_submodule(owner_path)
    blocks = getattr(owner, name)
    try:
        if not whole.shared:  # shared blocks are called less often, not cut
            setattr(owner, name, nn.ModuleList(list(blocks)[:keep]))
        cut = copy.deepcopy(module)  # only what is kept is copied
    finally:
        setattr(owner, name, blocks)
    cut_config(cut.config, keep)
    return cut

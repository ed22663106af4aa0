"""Where the blocks and the final norm of a network are: found by shape, or declared by its family."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from layerwise.core.errors import ModelError
from layerwise.models.families.catalog import family_of
from layerwise.models.families.configs import block_layout, model_depth, model_width
from layerwise.models.families.decoders import DEFAULT
from layerwise.models.families.family import BlockLayout, Family, has_values, text_config


@dataclass(frozen=True)
class ModelStructure:
    """The blocks of a network in order of execution, the final norm, if there is one, and the points inside a block.

    If blocks are `shares_blocks` between layers, a short list of blocks is called repeatedly: the k-th call is layer k.
    """

    path: str
    blocks: tuple[nn.Module, ...]
    depth: int
    width: int
    final_norm: nn.Module | None
    family: Family = DEFAULT
    layout: BlockLayout | None = None  # None if the family declares no points inside a block
    architecture: str = ""  # for messages

    @property
    def shares_blocks(self) -> bool:
        return self.family.shares_blocks

    def require_layout(self) -> BlockLayout:
        """The layout of a block; raises if it is not declared for this architecture."""
        if self.layout is None:
            raise ModelError(
                f"the points inside a block are not declared for {self.architecture or 'this architecture'}, or not "
                "for its configuration: leave out inside, or add them in models/families (docs/inside.md)"
            )
        return self.layout


def find_structure(module: nn.Module, config: Any) -> ModelStructure:
    """Finds the blocks of a transformers model; raises ModelError with the candidates if they are ambiguous."""
    model_type = getattr(config, "model_type", "")
    family = family_of(config)
    if family.unsupported_reason:
        raise ModelError(f"{model_type} models cannot be read layer by layer: {family.unsupported_reason}")
    depth = model_depth(config)
    text_path = text_model_path(module, config)
    path = text_path + (family.blocks or find_blocks(module.get_submodule(text_path.rstrip(".")), depth, model_type))
    blocks = module.get_submodule(path)
    assert isinstance(blocks, nn.ModuleList)
    if family.final_norm and has_values(config, family.final_norm_condition):
        norm: nn.Module | None = module.get_submodule(text_path + family.final_norm)
    else:
        norm = find_final_norm(module.get_submodule(path.rpartition(".")[0]), family.final_norms)
    return ModelStructure(
        path, tuple(blocks), depth, model_width(config), norm, family, block_layout(config), model_type
    )


def find_final_norm(owner: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    """The final norm among the children of the module that contains the blocks; None if there is none."""
    norms = [norm for name in names if isinstance(norm := getattr(owner, name, None), nn.Module)]
    return norms[0] if norms else None


def text_model_path(module: nn.Module, config: Any) -> str:
    """Path, with a trailing dot, of the part described by a nested text config; "" if there is none."""
    text = text_config(config)
    if text is config:
        return ""
    parts = (str(name) for name, part in module.named_modules() if type(getattr(part, "config", None)) is type(text))
    return next((f"{name}." for name in parts), "")  # named_modules goes from outer to inner modules


def find_blocks(module: nn.Module, depth: int, model_type: str) -> str:
    """Path of the outermost ModuleList whose length is the model's depth."""
    lists = {str(name): len(part) for name, part in module.named_modules() if isinstance(part, nn.ModuleList)}
    candidates = [name for name, length in lists.items() if length == depth]
    outermost = [name for name in candidates if name.count(".") == min(n.count(".") for n in candidates)]
    if len(outermost) == 1:
        return outermost[0]
    if not candidates:
        listing = ", ".join(f"{name} ({length})" for name, length in lists.items()) or "none"
        raise ModelError(
            f"found no ModuleList of {depth} blocks in this {model_type or 'model'}; lists found: {listing}. "
            "Pass the submodule that contains the blocks, or open an issue with this message"
        )
    parts = [f"--part {name.split('.')[0]}" for name in outermost]
    raise ModelError(
        f"this {model_type or 'model'} has {len(outermost)} stacks of {depth} blocks: {', '.join(outermost)}. "
        f"Choose one: {' or '.join(parts)}"
    )

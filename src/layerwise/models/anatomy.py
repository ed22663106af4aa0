"""Anatomy: where a network's blocks and its final norm are, found by shape, with a row of data for exceptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from layerwise.core.errors import ModelError

# Names under which families keep the norm that follows the last block, beside the list of blocks.
FINAL_NORMS = ("norm", "final_layer_norm", "final_layernorm", "final_norm", "ln_f", "norm_f")


@dataclass(frozen=True)
class FamilyRow:
    """A family whose blocks are not one ModuleList as long as the model is deep."""

    blocks: str = ""  # path of the list to use instead
    norm: str = ""  # name of the norm after the last block, where other families give that name to another norm
    shared: bool = False  # one block is called again and again, once a layer
    refused: str = ""  # why it cannot be read


EXCEPTIONS: Mapping[str, FamilyRow] = {
    **dict.fromkeys(
        ("blenderbot", "m2m_100", "mbart", "nllb-moe", "pegasus", "pegasus_x", "plbart", "speech_to_text", "whisper",
         "xglm"),
        FamilyRow(norm="layer_norm"),
    ),
    "xlm-roberta-xl": FamilyRow(norm="LayerNorm"),
    "albert": FamilyRow(blocks="encoder.albert_layer_groups", shared=True),
    "xlnet": FamilyRow(refused="its blocks pass hidden states as (tokens, batch, width)"),
}

LATE_STATES = ("mamba", "mamba2", "falcon_mamba")  # their hidden_states begin after block 1 and end with the norm


@dataclass(frozen=True)
class Anatomy:
    """The blocks of a network in the order they run, and the norm after the last one, if it has one.

    Where blocks are `shared` between layers, a short list of them is called over and over: the k-th call
    anywhere in the list makes layer k.
    """

    path: str
    blocks: tuple[nn.Module, ...]
    depth: int
    width: int
    final_norm: nn.Module | None
    shared: bool = False


def find_anatomy(module: nn.Module, config: Any) -> Anatomy:
    """The blocks of a transformers model; raises ModelError naming the candidates where they are not clear."""
    family = getattr(config, "model_type", "")
    row = EXCEPTIONS.get(family, FamilyRow())
    if row.refused:
        raise ModelError(f"{family} models cannot be read layer by layer: {row.refused}")
    depth = depth_of(config)
    path = row.blocks or find_blocks(module, depth, family)
    owner = module.get_submodule(path.rpartition(".")[0])
    names = (row.norm,) if row.norm else FINAL_NORMS
    norms = [norm for name in names if isinstance(norm := getattr(owner, name, None), nn.Module)]
    blocks = module.get_submodule(path)
    assert isinstance(blocks, nn.ModuleList)
    return Anatomy(path, tuple(blocks), depth, width_of(config), norms[0] if norms else None, row.shared)


def find_blocks(module: nn.Module, depth: int, family: str) -> str:
    """Path of the outermost ModuleList that is as long as the model is deep."""
    lists = {str(name): len(part) for name, part in module.named_modules() if isinstance(part, nn.ModuleList)}
    fitting = [name for name, length in lists.items() if length == depth]
    outermost = [name for name in fitting if name.count(".") == min(n.count(".") for n in fitting)]
    if len(outermost) == 1:
        return outermost[0]
    if not fitting:
        found = ", ".join(f"{name} ({length})" for name, length in lists.items()) or "none"
        raise ModelError(
            f"no list of blocks as long as this {family or 'model'} is deep ({depth}); lists found: {found}. "
            "Pass the part of the model that holds the blocks, or open an issue with this line"
        )
    parts = sorted(name.split(".")[0] for name in outermost)
    raise ModelError(
        f"this {family or 'model'} has {len(outermost)} stacks of {depth} blocks: {', '.join(outermost)}. "
        f"Say which one to read: part={parts[0]!r} (--part {parts[0]})"
    )


def depth_of(config: Any) -> int:
    """The number of blocks, from the config alone."""
    for name in ("num_hidden_layers", "num_layers", "encoder_layers"):
        if isinstance(value := getattr(config, name, None), int):
            return value
    raise ModelError(f"the config of this {getattr(config, 'model_type', 'model')} does not say how deep it is")


def width_of(config: Any) -> int:
    """The width of the hidden states, from the config alone."""
    for name in ("hidden_size", "d_model", "n_embd"):
        if isinstance(value := getattr(config, name, None), int):
            return value
    raise ModelError(f"the config of this {getattr(config, 'model_type', 'model')} does not say how wide it is")


def has_layer_0(config: Any) -> bool:
    """False for families whose hidden_states begin after the first block."""
    return getattr(config, "model_type", "") not in LATE_STATES

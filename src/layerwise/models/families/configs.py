"""Depth, width and positions from a config, and the config of a truncated model."""

from collections.abc import Sequence
from typing import Any

from layerwise.core.errors import ModelError
from layerwise.models.families.catalog import family_of
from layerwise.models.families.family import BlockLayout, text_config


def model_depth(config: Any) -> int:
    """The number of blocks."""
    return config_number(config, family_of(config).depth_fields, "depth")


def model_width(config: Any) -> int:
    """The width of the hidden states."""
    return config_number(config, family_of(config).width_fields, "width")


def config_number(config: Any, names: tuple[str, ...], quantity: str) -> int:
    values = [value for name in names if isinstance(value := getattr(text_config(config), name, None), int)]
    if not values:
        kind = getattr(config, "model_type", "model")
        raise ModelError(f"the config of this {kind} does not define its {quantity} (none of {', '.join(names)})")
    return values[0]


def max_positions(config: Any) -> int | None:
    """The maximum number of positions; None if the config sets no limit."""
    config, family = text_config(config), family_of(config)
    positions = getattr(config, family.position_field, None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    unused = family.unused_positions
    return positions - ((config.pad_token_id or 0) + 1 if unused == "padding" else unused)


def block_layout(config: Any) -> BlockLayout | None:
    """The layout of the model's blocks; None if its family does not declare one."""
    layouts = family_of(config).layouts
    return next((layout for layout in layouts if layout.matches(text_config(config))), None)


def truncate_config(config: Any, block_count: int) -> None:
    """Changes a config in place so that the model has its first `block_count` blocks."""
    select_config_blocks(config, range(block_count))


def select_config_blocks(config: Any, kept: Sequence[int]) -> None:
    """Changes a config in place so that the model has only these blocks, counted from 0."""
    config, family = text_config(config), family_of(config)
    values = config.to_dict()
    for name in family.depth_fields_to_set:
        if name in values:
            setattr(config, name, len(kept))
    for name in family.per_block_fields:
        if isinstance(values.get(name), list):
            setattr(config, name, [entry for i, entry in enumerate(values[name]) if i in kept])
    if isinstance(values.get("stage_names"), list):  # a backbone for other models, which outputs a stage per block
        config.stage_names = values["stage_names"][: len(kept) + 1]
        config.set_output_features_output_indices(out_features=[config.stage_names[-1]], out_indices=None)

"""Depth, width and positions from a config, and the config of a truncated model."""

from typing import Any

from layerwise.core.errors import ModelError
from layerwise.models.families.catalog import family_of
from layerwise.models.families.family import BlockLayout
from layerwise.models.families.nested import text_config


def depth_of(config: Any) -> int:
    """The number of blocks."""
    return number_in(config, family_of(config).depth_fields, "depth")


def width_of(config: Any) -> int:
    """The width of the hidden states."""
    return number_in(config, family_of(config).width_fields, "width")


def number_in(config: Any, names: tuple[str, ...], measure: str) -> int:
    found = [value for name in names if isinstance(value := getattr(text_config(config), name, None), int)]
    if not found:
        kind = getattr(config, "model_type", "model")
        raise ModelError(f"the config of this {kind} does not define its {measure} (none of {', '.join(names)})")
    return found[0]


def positions_of(config: Any) -> int | None:
    """The maximum number of positions; None if the config sets no limit."""
    config, family = text_config(config), family_of(config)
    positions = getattr(config, family.position_field, None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    unused = family.unused_positions
    return positions - ((config.pad_token_id or 0) + 1 if unused == "padding" else unused)


def layout_of(config: Any) -> BlockLayout | None:
    """The layout of the model's blocks; None if its family does not declare one."""
    layouts = family_of(config).layouts
    return next((layout for layout in layouts if layout.fits(text_config(config))), None)


def cut_config(config: Any, keep: int) -> None:
    """Changes a config in place so that the model has `keep` blocks."""
    config, family = text_config(config), family_of(config)
    known = config.to_dict()
    for name in family.cut_fields:
        if name in known:
            setattr(config, name, keep)
    for name in family.per_block_fields:
        if isinstance(known.get(name), list):
            setattr(config, name, known[name][:keep])

"""Configs: depth, width and positions of a model from its config alone, and the config of a model that was cut."""

from typing import Any

from layerwise.core.errors import ModelError
from layerwise.models.families.catalog import family_of
from layerwise.models.families.family import BlockLayout
from layerwise.models.families.nested import text_config


def depth_of(config: Any) -> int:
    """The number of blocks."""
    return number_in(config, family_of(config).depth_fields, "deep")


def width_of(config: Any) -> int:
    """The width of the hidden states."""
    return number_in(config, family_of(config).width_fields, "wide")


def number_in(config: Any, names: tuple[str, ...], measure: str) -> int:
    found = [value for name in names if isinstance(value := getattr(text_config(config), name, None), int)]
    if not found:
        kind = getattr(config, "model_type", "model")
        raise ModelError(f"the config of this {kind} does not say how {measure} it is (no {', '.join(names)})")
    return found[0]


def positions_of(config: Any) -> int | None:
    """How many tokens can have a position; None where the config sets no limit."""
    config, family = text_config(config), family_of(config)
    positions = getattr(config, family.position_field, None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    unused = family.unused_positions
    return positions - ((config.pad_token_id or 0) + 1 if unused == "padding" else unused)


def layout_of(config: Any) -> BlockLayout | None:
    """The inside of this model's blocks; None where its family does not declare it."""
    layouts = family_of(config).layouts
    return next((layout for layout in layouts if layout.fits(text_config(config))), None)


def cut_config(config: Any, keep: int) -> None:
    """Makes a config say that the model has `keep` blocks."""
    config, family = text_config(config), family_of(config)
    known = config.to_dict()
    for name in family.cut_fields:
        if name in known:
            setattr(config, name, keep)
    for name in family.per_block_fields:
        if isinstance(known.get(name), list):
            setattr(config, name, known[name][:keep])

"""Layer selection: parses `all`, `0,6,12`, `25%,50%` or `last` into layer numbers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from layerwise.core.checks import require_count
from layerwise.core.errors import InputError
from layerwise.models.spec import LayerChoice as LayerChoice

NUMBER, PERCENT = re.compile(r"-?\d+", re.ASCII), re.compile(r"(\d+(?:\.\d+)?)%", re.ASCII)


def layer_at_depth(fraction: float, depth: int) -> int:
    """The layer nearest to a fraction of the depth; ties go to the shallower layer."""
    position = round(fraction * depth, 9)  # 7 % of 50 is 3.5, but slightly more in floating point
    below = int(position)
    return below if position - below <= 0.5 else below + 1


def choose_layers(choice: LayerChoice, depth: int) -> tuple[int, ...]:
    """Layer numbers from 0 (embeddings) to depth, ascending and unique; raises InputError otherwise."""
    if isinstance(choice, str) and choice == "all":
        return tuple(range(depth + 1))
    chosen = sorted({parse_layer(item, depth) for item in split_layer_choice(choice)})
    if not chosen:
        raise InputError("no layer given; use all, last, numbers such as 0,6,12 or depths such as 25%,50%")
    return tuple(chosen)


def split_layer_choice(choice: LayerChoice) -> list[Any]:
    """The items of a choice: a single value, a comma-separated string, a list or an array."""
    if isinstance(choice, str):
        return [*choice.split(",")]
    if isinstance(choice, Iterable) and not isinstance(choice, Mapping) and getattr(choice, "shape", True) != ():
        return [*choice]
    return [choice]  # also a numpy scalar, which is an array without axes


def parse_layer(item: object, depth: int) -> int:
    """One layer from `last`, a number (negative counts from the end) or a percentage of the depth."""
    value = item.strip() if isinstance(item, str) else item
    if value == "last":
        return depth
    if isinstance(value, str):
        if percent := PERCENT.fullmatch(value):
            return layer_at_depth(fraction_of_percent(percent[1]), depth)
        if not NUMBER.fullmatch(value):
            raise InputError(f"{value!r} is not a layer; use all, last, a number or a depth such as 50%")
        value = int(value)
    number = require_count("a layer", value, minimum=None)
    layer = number if number >= 0 else depth + 1 + number
    if not 0 <= layer <= depth:
        raise InputError(f"layer {item} does not exist: this model has layers 0 (embeddings) to {depth}")
    return layer


def fraction_of_percent(percent: str) -> float:
    """0.8 for 80; raises above 100 %."""
    fraction = float(percent) / 100
    if fraction > 1:
        raise InputError(f"a depth of {percent}% is beyond the last layer (100%)")
    return fraction

"""Checks of option values: choices and numeric bounds. The options of a verb say which check each uses."""

import math
import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from operator import index
from typing import Any, Literal, NamedTuple, get_args

from layerwise.core.errors import InputError

RowTreatment = Literal["raw", "unit", "centered", "centered_unit"]
ROW_TREATMENTS: tuple[str, ...] = get_args(RowTreatment)
Choices = str | Sequence[str]  # one choice, several separated by commas, or a list
NormChoice = Literal["raw", "normed"]
NORMS: tuple[str, ...] = get_args(NormChoice)
TokenChoice = Literal["all", "no_first", "no_special", "no_sinks", "with_padding"]
TOKEN_CHOICES: tuple[str, ...] = get_args(TokenChoice)
PoolingChoice = Literal["mean", "last", "first", "max"]
POOLINGS: tuple[str, ...] = get_args(PoolingChoice)
EntropyRoute = Literal["exact", "products"]
ExportMode = Literal["portable", "compact"]
EXPORT_MODES: tuple[str, ...] = get_args(ExportMode)
Precision = Literal["float32", "float16"]  # dtype of stored vectors
PRECISIONS: tuple[str, ...] = get_args(Precision)
STATES = ("auto", "exact", "float32")  # or sketch:K
TRANSFORMS = (
    "none", "center", "zscore", "remove_top:K", "whiten[:SHRINKAGE[:DIMENSIONS]]", "MAP+mean", "MAP+static",
    "MAP@DIMENSIONS",
)  # fmt: skip

MIN_MAX_LENGTH = 2  # with one token, all texts with the same first token would have the same vector
MEAN, STATIC = "+mean", "+static"  # what stands beside the vector of a layer
Shipped = Literal["shipped"]
SHIPPED: Shipped = "shipped"  # the norm and pooling of `last`, for a model that ships its own pooling
POSITIVE_INTEGER, DECIMAL_NUMBER = r"0*[1-9]\d*", r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+"
MAP_PATTERN = (
    rf"center|zscore|remove_top:{POSITIVE_INTEGER}|whiten(?::(?P<shrinkage>{DECIMAL_NUMBER})(?::{POSITIVE_INTEGER})?)?"
)
TRANSFORM_PATTERN = re.compile(
    rf"(?P<map>{MAP_PATTERN})(?P<beside>\+mean|\+static)?(?:@(?P<dims>{POSITIVE_INTEGER}))?", re.ASCII
)


class Transform(NamedTuple):
    """The parts of a transform such as `remove_top:8+mean@256`."""

    map: str
    beside: str = ""  # MEAN, STATIC or nothing
    dims: int | None = None  # keep this many principal directions of the result


def suggestion(value: object, choices: Iterable[str]) -> str:
    """`; did you mean raw?` if a known choice is close, else an empty string."""
    by_casefold = {name.casefold(): name for name in choices}
    matches = get_close_matches(str(value).casefold(), by_casefold, 1)
    return f"; did you mean {by_casefold[matches[0]]}?" if matches else ""


def require_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """The value, if it is one of the choices; raises InputError otherwise."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name} {value!r} is not one of {', '.join(choices)}{suggestion(value, choices)}")
    return str(value)


def split_choices(name: str, value: Any) -> tuple[str, ...]:
    """The choices in a string (separated by commas) or list, without duplicates."""
    parts = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{name} must be one choice, several separated by commas, or a list, not {value!r}")
    return tuple(dict.fromkeys(part.strip() for part in parts))


def require_choices(name: str, value: object, choices: Sequence[str]) -> tuple[str, ...]:
    """The choices of an option that takes several: at least one, all known."""
    chosen = tuple(require_choice(name, item, choices) for item in split_choices(name, value))
    if not chosen:
        raise InputError(f"{name} is empty; choose from {', '.join(choices)}")
    return chosen


def require_count(name: str, number: Any, minimum: int | None = 1, maximum: int | None = None) -> int:
    """The number as an int, if it is whole, at least `minimum` and at most `maximum`."""
    try:
        count = None if isinstance(number, bool) else index(number)
    except TypeError:
        count = None
    if count is None:
        raise InputError(f"{name} must be a whole number, not {number!r}")
    if minimum is not None and count < minimum:
        raise InputError(f"{name} must be at least {minimum}, not {count}")
    if maximum is not None and count > maximum:
        raise InputError(f"{name} must be at most {maximum:,}, not {count}")
    return count


def require_file_name(path: object) -> None:
    """Raises if no file or folder can have this name."""
    try:
        encoded = os.fsencode(str(path))
    except UnicodeEncodeError:
        raise InputError(f"cannot use {ascii(str(path))} as a file or folder: it has half a character") from None
    if b"\0" in encoded:
        raise InputError(f"cannot use {ascii(str(path))} as a file or folder: it has a null character")


def require_max_length(name: str, number: Any) -> int:
    """A maximum input length in tokens."""
    return require_count(name, number, minimum=MIN_MAX_LENGTH)


def require_fraction(name: str, number: Any) -> float:
    """A number greater than 0 and at most 1."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 1:
        raise InputError(f"{name} must be greater than 0 and at most 1, not {number!r}")
    return float(number)


def require_transform(transform: object) -> str:
    """The name of a linear map. The number of directions is checked when the map is fitted."""
    split_transform(transform)
    return str(transform)


def split_transform(transform: object) -> Transform:
    """The map, what stands beside it and the number of dimensions; raises if it is not a transform."""
    if transform == "none":
        return Transform("none")
    match = TRANSFORM_PATTERN.fullmatch(transform) if isinstance(transform, str) else None
    if match is None or float(match["shrinkage"] or 0) > 1:
        raise InputError(f"transform {transform!r} is not one of {', '.join(TRANSFORMS)}")
    return Transform(match["map"], match["beside"] or "", int(match["dims"]) if match["dims"] else None)


def with_dims(transform: str, dims: int | None) -> str:
    """The transform with that many dimensions; unchanged for None."""
    if dims is None:
        return transform
    map_name, beside, _ = split_transform(transform)
    if map_name == "none":
        raise InputError("dims needs a linear map: use at least the transform center")
    return f"{map_name}{beside}@{require_count('dims', dims)}"


def require_state(state: object) -> str:
    """How the sums over a data set are stored."""
    if not isinstance(state, str) or (
        state not in STATES and not re.fullmatch(f"sketch:{POSITIVE_INTEGER}", state, re.ASCII)
    ):
        known = f"{', '.join(STATES)}, sketch:512 (or another number)"
        raise InputError(f"state {state!r} is not one of {known}{suggestion(state, STATES)}")
    return state


def require_number(name: str, value: object, where: str, *, allow_missing: bool = False) -> float:
    """A number from a table cell, which may be stored as text. With `allow_missing`, an empty cell becomes NaN."""
    if allow_missing and (value is None or value == "" or value != value):
        return math.nan
    try:
        if isinstance(value, bool) or not math.isfinite(number := float(value)):  # type: ignore[arg-type]
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name} must be a number, not {value!r}") from None
    return number

"""Checks of option values: choices and numeric bounds. options/ says which option uses which check."""

import math
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from operator import index
from typing import Any, Literal, get_args

from layerwise.core.errors import InputError

RowTreatment = Literal["raw", "unit", "centered", "centered_unit"]
ROW_TREATMENTS: tuple[str, ...] = get_args(RowTreatment)
Words = str | Sequence[str]  # one choice, several separated by commas, or a list
NormWord = Literal["raw", "normed"]
NORMS: tuple[str, ...] = get_args(NormWord)
TokenChoice = Literal["all", "no_first", "no_special", "no_sinks"]
TOKEN_CHOICES: tuple[str, ...] = get_args(TokenChoice)
PoolingWord = Literal["mean", "last", "first", "max"]
POOLINGS: tuple[str, ...] = get_args(PoolingWord)
ExportMode = Literal["portable", "compact"]
MODES: tuple[str, ...] = get_args(ExportMode)
Precision = Literal["float32", "float16"]  # dtype of stored vectors
PRECISIONS: tuple[str, ...] = get_args(Precision)
STATES = ("auto", "exact", "float32", "sketch:512 (or another number)")
TRANSFORMS = ("none", "center", "zscore", "remove_top:K", "whiten[:SHRINKAGE[:DIMENSIONS]]", "MAP+static")

SHORTEST_LENGTH = 2  # with one token, all texts with the same first token would have the same vector
STATIC = "+static"
Shipped = Literal["shipped"]
SHIPPED: Shipped = "shipped"  # the norm and pooling of `last`, for a model that ships its own pooling
WHOLE, NUMBER = r"0*[1-9]\d*", r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+"
MAPS = re.compile(rf"center|zscore|remove_top:{WHOLE}|whiten(?::(?P<shrinkage>{NUMBER})(?::{WHOLE})?)?", re.ASCII)


def suggestion(word: object, known: Iterable[str]) -> str:
    """`; did you mean raw?` if a known choice is close, else an empty string."""
    by_casefold = {name.casefold(): name for name in known}
    matches = get_close_matches(str(word).casefold(), by_casefold, 1)
    return f"; did you mean {by_casefold[matches[0]]}?" if matches else ""


def require_word(name: str, word: object, known: Iterable[str]) -> str:
    """The value, if it is one of the choices; raises InputError otherwise."""
    known = tuple(known)
    if not isinstance(word, str) or word not in known:
        raise InputError(f"{name} {word!r} is not one of {', '.join(known)}{suggestion(word, known)}")
    return str(word)


def split_words(name: str, given: Any) -> tuple[str, ...]:
    """The choices in a string (separated by commas) or list, without duplicates."""
    parts = given.split(",") if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{name} must be one choice, several separated by commas, or a list, not {given!r}")
    return tuple(dict.fromkeys(part.strip() for part in parts))


def require_words(name: str, given: object, known: Sequence[str]) -> tuple[str, ...]:
    """The choices of an option that takes several: at least one, all known."""
    chosen = tuple(require_word(name, item, known) for item in split_words(name, given))
    if not chosen:
        raise InputError(f"{name} is empty; choose from {', '.join(known)}")
    return chosen


def require_count(name: str, number: Any, least: int | None = 1) -> int:
    """The number as an int, if it is whole and at least `least`."""
    try:
        count = None if isinstance(number, bool) else index(number)
    except TypeError:
        count = None
    if count is None:
        raise InputError(f"{name} must be a whole number, not {number!r}")
    if least is not None and count < least:
        raise InputError(f"{name} must be at least {least}, not {count}")
    return count


def require_length(name: str, number: Any) -> int:
    """A maximum input length in tokens."""
    return require_count(name, number, least=SHORTEST_LENGTH)


def require_share(name: str, number: Any) -> float:
    """A number greater than 0 and at most 1."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 1:
        raise InputError(f"{name} must be greater than 0 and at most 1, not {number!r}")
    return float(number)


def require_transform(word: object) -> str:
    """The name of a linear map. The number of directions is checked when the map is fitted."""
    match = MAPS.fullmatch(word.removesuffix(STATIC)) if isinstance(word, str) else None
    if word != "none" and (match is None or float(match["shrinkage"] or 0) > 1):
        raise InputError(f"transform {word!r} is not one of {', '.join(TRANSFORMS)}")
    return str(word)


def require_state(word: object) -> str:
    """How the sums over a data set are stored."""
    if not isinstance(word, str) or (word not in STATES and not re.fullmatch(f"sketch:{WHOLE}", word, re.ASCII)):
        hint = suggestion(word, STATES[:3])
        raise InputError(f"state {word!r} is not one of {', '.join(STATES)}{hint}")
    return word


def require_number(name: str, value: object, where: str, *, or_missing: bool = False) -> float:
    """A number from a table cell, which may be stored as text. With `or_missing`, an empty cell becomes NaN."""
    if or_missing and (value is None or value == "" or value != value):
        return math.nan
    try:
        if isinstance(value, bool) or not math.isfinite(number := float(value)):  # type: ignore[arg-type]
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name} must be a number, not {value!r}") from None
    return number

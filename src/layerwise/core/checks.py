"""Checks: the closed sets of words that options take and the numbers they allow, in one place for every verb."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from operator import index
from typing import Any, Literal, get_args

from layerwise.core.errors import InputError

RowTreatment = Literal["raw", "unit", "centered", "centered_unit"]
ROW_TREATMENTS: tuple[str, ...] = get_args(RowTreatment)
Words = str | Sequence[str]  # one, several with commas, or a list
READOUTS = ("raw", "normed")
TOKEN_CHOICES = ("all", "no_first", "no_special", "no_sinks")
POOLINGS = ("mean", "last", "first", "max")
ENGINES = ("local", "ray")
MODES = ("portable", "compact")  # of an export
PRECISIONS = ("float32", "float16")  # of stored vectors
STORED_VECTORS = ("keep", "evict")
KEPT_PROMPTS = ("auto", "all", "none")
STATES = ("auto", "exact", "float32", "sketch:512 (or another number)")
TRANSFORMS = ("none", "center", "zscore", "remove_top:K", "whiten[:SHRINKAGE[:DIMENSIONS]]", "MAP+static")

SHORTEST_LENGTH = 2  # with one token, all texts that begin alike would have the same vector
STATIC = "+static"
SHIPPED = "shipped"  # the readout and pooling of `last`, for a model that ships its own pooling
WHOLE, NUMBER = r"0*[1-9]\d*", r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+"
MAPS = re.compile(rf"center|zscore|remove_top:{WHOLE}|whiten(?::(?P<shrinkage>{NUMBER})(?::{WHOLE})?)?", re.ASCII)


def suggestion(word: object, known: Iterable[str]) -> str:
    """`; did you mean raw?` where a known word is near, else nothing."""
    plain = {name.casefold(): name for name in known}
    near = get_close_matches(str(word).casefold(), plain, 1)
    return f"; did you mean {plain[near[0]]}?" if near else ""


def require_word(name: str, word: object, known: Iterable[str]) -> str:
    """The word, if it is one of the known ones."""
    known = tuple(known)
    if not isinstance(word, str) or word not in known:
        raise InputError(f"{name} {word!r} is not one of {', '.join(known)}{suggestion(word, known)}")
    return str(word)


def split_words(name: str, given: Any) -> tuple[str, ...]:
    """One word, several with commas, or a list of them, each once."""
    parts = given.split(",") if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(part, str) for part in parts):
        raise InputError(f"{name} must be a word, several with commas, or a list of words, not {given!r}")
    return tuple(dict.fromkeys(part.strip() for part in parts))


def require_words(name: str, given: object, known: Sequence[str]) -> tuple[str, ...]:
    """The words of an option that takes several; at least one, all of them known."""
    found = tuple(require_word(name, word, known) for word in split_words(name, given))
    if not found:
        raise InputError(f"{name} names no word; use {', '.join(known)}")
    return found


def require_count(name: str, number: Any, least: int | None = 1) -> int:
    """The number as a plain int, if it is whole and not below `least`."""
    try:
        found = None if isinstance(number, bool) else index(number)
    except TypeError:
        found = None
    if found is None:
        raise InputError(f"{name} must be a whole number, not {number!r}")
    if least is not None and found < least:
        raise InputError(f"{name} must be at least {least}, not {found}")
    return found


def require_share(name: str, number: Any) -> float:
    """A number above 0 and up to 1."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 1:
        raise InputError(f"{name} must lie above 0 and be at most 1, not {number!r}")
    return float(number)


def require_transform(word: object) -> str:
    """The word of a linear map. How many directions a model has is checked where the map is fitted."""
    found = MAPS.fullmatch(word.removesuffix(STATIC)) if isinstance(word, str) else None
    if word != "none" and (found is None or float(found["shrinkage"] or 0) > 1):
        raise InputError(f"transform {word!r} is not one of {', '.join(TRANSFORMS)}")
    return str(word)


def require_state(word: object) -> str:
    """How the sums over a data set are kept."""
    if not isinstance(word, str) or (word not in STATES and not re.fullmatch(f"sketch:{WHOLE}", word, re.ASCII)):
        near = suggestion(word, STATES[:3])
        raise InputError(f"state {word!r} is not one of {', '.join(STATES)}{near}")
    return word


def require_number(name: str, value: object, where: str, *, or_missing: bool = False) -> float:
    """A number out of a table's cell, where a file may hold it as text; `or_missing`: an empty cell is nan."""
    if or_missing and (value is None or value == "" or value != value):
        return math.nan
    try:
        if isinstance(value, bool) or not math.isfinite(found := float(value)):  # type: ignore[arg-type]
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(f"{where}: {name} must be a number, not {value!r}") from None
    return found


def optional(check: Callable[..., object], *args: Any, **options: Any) -> Callable[[Any], object]:
    """The check, passed over where the option is None: its default is meant."""
    return lambda given: None if given is None else check(*args, given, **options)


# What each option of a verb takes, by its name.
CHECKS: Mapping[str, Callable[[Any], object]] = {
    "readout": partial(require_words, "readout", known=READOUTS),
    "tokens": partial(require_words, "tokens", known=TOKEN_CHOICES),
    "pooling": optional(require_words, "pooling", known=POOLINGS),
    "rows": partial(require_words, "rows", known=ROW_TREATMENTS),
    "precision": partial(require_word, "precision", known=PRECISIONS),
    "vectors": partial(require_word, "vectors", known=STORED_VECTORS),
    "mode": partial(require_word, "mode", known=MODES),
    "keep_prompts": partial(require_word, "keep_prompts", known=KEPT_PROMPTS),
    "transform": require_transform,
    "state": require_state,
    "max_length": optional(require_count, "max_length", least=SHORTEST_LENGTH),
    "batch_tokens": partial(require_count, "batch_tokens"),
    "shard_size": partial(require_count, "shard_size"),
    "threads": optional(require_count, "threads"),
    "limit": optional(require_count, "limit"),
    "sample": optional(require_count, "sample"),
    "cap": optional(require_count, "cap"),
    "count": partial(require_count, "count"),
    "repeats": partial(require_count, "repeats"),
    "workers": optional(require_count, "workers", least=0),
    "allow_missing": partial(require_count, "allow_missing", least=0),
    "min_tokens": partial(require_count, "min_tokens", least=0),
    "seed": partial(require_count, "seed", least=None),
    "view_strength": partial(require_share, "view_strength"),
    "strength": partial(require_share, "strength"),
}


def problems_of(options: Mapping[str, Any]) -> list[str]:
    """What is wrong with these options, a sentence each; those that have no check here are passed over."""
    problems = []
    for name, given in options.items():
        try:
            if name in CHECKS:
                CHECKS[name](given)
        except InputError as error:
            problems.append(str(error))
    return problems


def require_options(**options: Any) -> None:
    """Raises one InputError that tells everything that is wrong with these options."""
    if problems := problems_of(options):
        raise InputError("; ".join(problems))

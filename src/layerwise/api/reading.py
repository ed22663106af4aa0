"""Shared by several verbs: how layers are read, and the texts that maps are fitted on."""

from collections.abc import Sequence
from typing import Any, Literal

from layerwise.core.checks import Words, split_words
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.models.readouts import Ways


def ways_to_read(norm: Words, tokens: Words, pooling: Words | None) -> Ways:
    """The readout choices; no pooling means the model's own."""
    values = {"norm": norm, "tokens": tokens, "pooling": pooling or ()}
    choices: Any = {name: split_words(name, value) for name, value in values.items()}  # checked when they are used
    return Ways(**choices)


def fitting_texts(fit: DataLike | None, recipes: Sequence[Recipe]) -> tuple[str, ...] | Literal["task"]:
    """The texts of `fit`, or "task"; raises if a recipe has a map but `fit` is None."""
    if fit is None and (transforms := [r.transform for r in recipes if r.transform != "none"]):
        raise InputError(f"transform {transforms[0]} must be fitted on texts of your own kind: pass fit= (--fit FILE)")
    if isinstance(fit, str) and fit == "task":
        return "task"
    return () if fit is None else tuple(example.text for example in open_source(fit))

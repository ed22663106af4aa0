"""Shared by several verbs: how layers are read, and the texts that maps are fitted on."""

from collections.abc import Sequence
from typing import Any, Literal

from layerwise.core.checks import Choices, split_choices
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.core.templates import split_templates
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.models.readouts import ReadoutChoices


def readout_choices(
    norm: Choices, tokens: Choices, pooling: Choices | None, template: Choices | None = None
) -> ReadoutChoices:
    """The readout choices; no pooling or template means the model's own."""
    values = {"norm": norm, "tokens": tokens, "pooling": pooling or ()}
    choices: Any = {name: split_choices(name, value) for name, value in values.items()}  # checked when they are used
    return ReadoutChoices(**choices, templates=split_templates(template))


def texts_to_fit(fit: DataLike | None, recipes: Sequence[Recipe]) -> tuple[str, ...] | Literal["task"]:
    """The texts of `fit`, or "task"; raises if a recipe has a map but `fit` is None."""
    if fit is None and (transforms := [r.transform for r in recipes if r.transform != "none"]):
        raise InputError(f"transform {transforms[0]} must be fitted on texts of your own kind: pass fit= (--fit FILE)")
    if isinstance(fit, str) and fit == "task":
        return "task"
    return () if fit is None else tuple(example.text for example in open_source(fit))

"""Expands `all`, `last` and layer numbers into readouts, with the pooling and prompt that the model ships."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Protocol

from layerwise.core.checks import SHIPPED, Choices, NormChoice, PoolingChoice, TokenChoice, split_choices
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.core.templates import parse_template, split_templates, template_of_prompt
from layerwise.models.layers import LayerChoice, choose_layers, split_layer_choice
from layerwise.models.shipped import Shipped


class ReadableModel(Protocol):
    """What must be known about a model: a ModelInfo (before its weights are loaded) or a Network."""

    @property
    def depth(self) -> int: ...
    @property
    def has_norm(self) -> bool: ...
    @property
    def shipped(self) -> Shipped | None: ...
    @property
    def plain_pooling(self) -> PoolingChoice: ...


@dataclass(frozen=True)
class ReadoutChoices:
    """Choices of norm, tokens, pooling and template; every combination is read.

    Empty pooling and templates mean the model's own.
    """

    norm: tuple[NormChoice, ...] = ("raw",)
    tokens: tuple[TokenChoice, ...] = ("all",)
    pooling: tuple[PoolingChoice, ...] = ()
    templates: tuple[str, ...] = ()


def last_recipe(model: ReadableModel) -> Recipe:
    """`last`: the model's own output.

    A model that ships no pooling is read as in plain sentence-transformers 6: its normal output, after the final norm
    if there is one; the last token for a causal language model, otherwise the mean over all tokens.
    """
    if model.shipped is None:
        return Recipe(model.depth, "normed" if model.has_norm else "raw", pooling=model.plain_pooling)
    return Recipe(model.depth, SHIPPED, "all", SHIPPED, template=template_of_prompt(model.shipped.prompt))


def baseline_recipe(model: ReadableModel) -> Recipe:
    """The baseline of a selection: the model as shipped, or mean pooling of the last layer if it ships no pooling.

    Without a prompt, the last token of a language model is a weak embedding, so mean pooling is the stronger baseline.
    """
    last = last_recipe(model)
    return last if last.shipped else replace(last, pooling="mean")


def layer_recipe(model: ReadableModel, pooling: PoolingChoice | None = None, template: str | None = None) -> Recipe:
    """The default recipe for a layer of this model; the caller sets the layer.

    Without a template, the model's own prompt is used. Text after the input is there to be read at the last token, so
    that is then the default pooling.
    """
    if template is None:
        template = template_of_prompt(model.shipped.prompt) if model.shipped else ""
    if pooling is None and parse_template(template).after:
        pooling = "last"
    own_pooling: PoolingChoice = model.shipped.require_pooling_choice() if model.shipped and not pooling else "mean"
    return Recipe(0, pooling=pooling or own_pooling, template=template)


def separate_last(layers: LayerChoice) -> tuple[LayerChoice | None, bool]:
    """The layers given by number or depth, if any, and whether `last` was given; `all` means both."""
    if isinstance(layers, str) and layers == "all":
        return "all", True
    items = split_layer_choice(layers)
    numbers = [item for item in items if str(item).strip() != "last"]
    return numbers or None, len(numbers) < len(items)


def expand_layers(
    model: ReadableModel, layers: LayerChoice, choices: ReadoutChoices, *, normed_last: bool = False
) -> list[Recipe]:
    """One recipe per layer and combination of choices, plus `last` if it or `all` was requested.

    Without a pooling, the model's own pooling is used. With `normed_last`, the last layer is also read after the
    final norm.
    """
    numbers, with_last = separate_last(layers)
    if model.depth == 0:
        if numbers not in (None, "all") or choices != ReadoutChoices():
            raise InputError("a static model has no layers, tokens or pooling to choose; use --layers last alone")
        return [last_recipe(model)]
    if numbers is None and choices != ReadoutChoices():
        raise InputError(
            "`last` is the model as shipped, with its own norm, tokens, pooling and prompt; to read the last layer "
            f"differently, use its number: {model.depth}"
        )
    recipes: list[Recipe] = []
    if numbers is not None:
        chosen = choose_layers(numbers, model.depth)
        combinations = product(choices.templates or (None,), choices.norm, choices.tokens, choices.pooling or (None,))
        readings = [replace(layer_recipe(model, p, t), norm=n, tokens=k) for t, n, k, p in combinations]
        recipes = [replace(reading, layer=layer) for reading in readings for layer in chosen]
        if normed_last and model.has_norm and model.depth in chosen:
            recipes += [replace(reading, layer=model.depth, norm="normed") for reading in readings]
    return list(dict.fromkeys([*recipes, *([last_recipe(model)] if with_last else [])]))


def readout_choices(
    norm: Choices, tokens: Choices, pooling: Choices | None, template: Choices | None = None
) -> ReadoutChoices:
    """The readout choices; no pooling or template means the model's own."""
    values = {"norm": norm, "tokens": tokens, "pooling": pooling or ()}
    choices: Any = {name: split_choices(name, value) for name, value in values.items()}  # checked when they are used
    return ReadoutChoices(**choices, templates=split_templates(template))

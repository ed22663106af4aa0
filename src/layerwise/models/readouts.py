"""Expands `all`, `last` and layer numbers into readouts, with the pooling and prompt that the model ships."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from layerwise.core.checks import SHIPPED, NormWord, PoolingWord, TokenChoice
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.models.layers import LayerChoice, choose_layers, layer_words
from layerwise.models.shipped import Shipped


class Described(Protocol):
    """What must be known about a model: an Outline (before its weights are loaded) or a Network."""

    @property
    def depth(self) -> int: ...
    @property
    def has_norm(self) -> bool: ...
    @property
    def shipped(self) -> Shipped | None: ...
    @property
    def plain_pooling(self) -> PoolingWord: ...


@dataclass(frozen=True)
class Ways:
    """Choices of norm, tokens and pooling; every combination is read. Empty pooling means the model's own."""

    norm: tuple[NormWord, ...] = ("raw",)
    tokens: tuple[TokenChoice, ...] = ("all",)
    pooling: tuple[PoolingWord, ...] = ()


def last_recipe(model: Described) -> Recipe:
    """`last`: the model's own output.

    A model that ships no pooling is read as in plain sentence-transformers 6: its normal output, after the final norm
    if there is one; the last token for a causal language model, otherwise the mean over all tokens.
    """
    if model.shipped is None:
        return Recipe(model.depth, "normed" if model.has_norm else "raw", pooling=model.plain_pooling)
    return Recipe(model.depth, SHIPPED, "all", SHIPPED, prompt=model.shipped.prompt)


def baseline_recipe(model: Described) -> Recipe:
    """The baseline of a selection: the model as shipped, or mean pooling of the last layer if it ships no pooling.

    Without a prompt, the last token of a language model is a weak embedding, so mean pooling is the stronger baseline.
    """
    last = last_recipe(model)
    return last if last.shipped else replace(last, pooling="mean")


def layer_recipe(model: Described, pooling: PoolingWord | None = None) -> Recipe:
    """The default recipe for a layer of this model; the caller sets the layer."""
    if model.shipped is None:
        return Recipe(0, pooling=pooling or "mean")
    return Recipe(0, pooling=pooling or model.shipped.require_pooling_word(), prompt=model.shipped.prompt)


def split_last(layers: LayerChoice) -> tuple[LayerChoice | None, bool]:
    """The layers given by number or depth, if any, and whether `last` was given; `all` means both."""
    if isinstance(layers, str) and layers == "all":
        return "all", True
    words = layer_words(layers)
    numbers = [word for word in words if str(word).strip() != "last"]
    return numbers or None, len(numbers) < len(words)


def expand_layers(model: Described, layers: LayerChoice, ways: Ways, *, normed_last: bool = False) -> list[Recipe]:
    """One recipe per layer and combination of choices, plus `last` if it or `all` was requested.

    Without a pooling, the model's own pooling is used. With `normed_last`, the last layer is also read after the
    final norm.
    """
    numbers, with_last = split_last(layers)
    if numbers is None and ways != Ways():
        raise InputError(
            "`last` is the model as shipped, with its own norm, tokens and pooling; to read the last layer "
            f"differently, use its number: {model.depth}"
        )
    found: list[Recipe] = []
    if numbers is not None:
        chosen = choose_layers(numbers, model.depth)
        base = layer_recipe(model, ways.pooling[0] if ways.pooling else None)
        each = product(ways.norm, ways.tokens, ways.pooling or (base.pooling,))
        read = [replace(base, norm=r, tokens=t, pooling=p) for r, t, p in each]
        found = [replace(way, layer=layer) for way in read for layer in chosen]
        if normed_last and model.has_norm and model.depth in chosen:
            found += [replace(way, layer=model.depth, norm="normed") for way in read]
    return list(dict.fromkeys([*found, *([last_recipe(model)] if with_last else [])]))

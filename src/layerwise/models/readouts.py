"""What `all`, `last` and layer numbers mean for a model: readouts, with the pooling and the prompt that it ships."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

from layerwise.core.checks import SHIPPED, NormWord, PoolingWord, TokenChoice
from layerwise.core.errors import InputError
from layerwise.core.recipe import Recipe
from layerwise.models.layers import LayerChoice, choose_layers, layer_words
from layerwise.models.shipped import Shipped


class Described(Protocol):
    """What must be known of a model: an Outline, before its weights are loaded, or a Network."""

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
    """Several ways to read layers, every combination of these; no pooling means the model's own."""

    norm: tuple[NormWord, ...] = ("raw",)
    tokens: tuple[TokenChoice, ...] = ("all",)
    pooling: tuple[PoolingWord, ...] = ()


def last_recipe(model: Described) -> Recipe:
    """`last`: the model as shipped.

    One that ships no pooling is read as plain sentence-transformers 6 would read it: its usual output, normed where the
    family has a final norm; the last token of a causal language model, else the mean over all tokens.
    """
    if model.shipped is None:
        return Recipe(model.depth, "normed" if model.has_norm else "raw", pooling=model.plain_pooling)
    return Recipe(model.depth, SHIPPED, "all", SHIPPED, prompt=model.shipped.prompt)


def baseline_recipe(model: Described) -> Recipe:
    """What a choice is held against: the model as shipped; of one that ships no pooling, the mean over its last layer.

    Without a prompt the last token of a language model says little, so the mean is the stronger baseline.
    """
    last = last_recipe(model)
    return last if last.shipped else replace(last, pooling="mean")


def layer_recipe(model: Described, pooling: PoolingWord | None = None) -> Recipe:
    """How a layer of this model is read unless asked otherwise; the layer itself is to be filled in."""
    if model.shipped is None:
        return Recipe(0, pooling=pooling or "mean")
    return Recipe(0, pooling=pooling or model.shipped.require_pooling_word(), prompt=model.shipped.prompt)


def split_last(layers: LayerChoice) -> tuple[LayerChoice | None, bool]:
    """The layers that are named by number or depth, if any, and whether `last` is among the words; `all` is both."""
    if isinstance(layers, str) and layers == "all":
        return "all", True
    words = layer_words(layers)
    numbers = [word for word in words if str(word).strip() != "last"]
    return numbers or None, len(numbers) < len(words)


def expand_layers(model: Described, layers: LayerChoice, ways: Ways, *, normed_last: bool = False) -> list[Recipe]:
    """One recipe for each layer and way to read it, and `last` where it is named or all layers are wanted.

    Without a pooling, layers are pooled as the model itself pools. With `normed_last`, the deepest layer is also read
    with the final norm.
    """
    numbers, with_last = split_last(layers)
    if numbers is None and ways != Ways():
        raise InputError(
            "`last` is the model as shipped, with its own norm, tokens and pooling; to read its last layer in another "
            f"way, name it by number: {model.depth}"
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

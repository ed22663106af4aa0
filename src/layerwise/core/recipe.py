"""Readout and Recipe: which vector of a text, and what a user deploys. Needs no torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Self

from layerwise.core.checks import (
    MEAN,
    NORMS,
    POOLINGS,
    SHIPPED,
    STATIC,
    TOKEN_CHOICES,
    NormChoice,
    PoolingChoice,
    Shipped,
    TokenChoice,
    require_choice,
    require_count,
    require_max_length,
    split_transform,
)
from layerwise.core.errors import InputError, RunError
from layerwise.core.formats import parse_record, require_shape
from layerwise.core.templates import canonical_template

RECIPE_SHAPE = {
    "layer": int, "norm": str, "tokens": str, "pooling": str, "transform": str, "normalize": bool, "template": str,
    "max_length": (int, NoneType),
}  # fmt: skip


@dataclass(frozen=True)
class Readout:
    """Which vector of an example: layer, norm, tokens and pooling.

    Args:
        layer: 0 is what enters the first block, k the output of block k.
        norm: "raw", or "normed" (after the model's final norm). "shipped", together with pooling "shipped", is the
            model's own output: its pooling, map and normalization.
        tokens: which tokens count: "all", "no_first", "no_special", "no_sinks" or "with_padding".
        pooling: "mean", "last", "first", "max" or "shipped".
    """

    layer: int
    norm: NormChoice | Shipped = "raw"
    tokens: TokenChoice = "all"
    pooling: PoolingChoice | Shipped = "mean"

    def __post_init__(self) -> None:
        # numpy numbers cannot be written as JSON
        object.__setattr__(self, "layer", require_count("layer", self.layer, minimum=0))
        require_choice("norm", self.norm, (*NORMS, SHIPPED))
        require_choice("tokens", self.tokens, TOKEN_CHOICES)
        require_choice("pooling", self.pooling, (*POOLINGS, SHIPPED))
        if (self.norm == SHIPPED) != (self.pooling == SHIPPED):
            raise InputError("norm and pooling must both be 'shipped', or neither")


@dataclass(frozen=True)
class Recipe(Readout):
    """How a text becomes a vector: a readout, a template, and a linear map that is fitted without labels.

    Args:
        layer: 0 is what enters the first block, k the output of block k.
        norm: "raw", "normed" or "shipped".
        tokens: which tokens count: "all", "no_first", "no_special", "no_sinks" or "with_padding".
        pooling: "mean", "last", "first", "max" or "shipped".
        transform: the linear map: "none", "center", "zscore", "remove_top:K", "whiten[:SHRINKAGE[:DIMENSIONS]]". With
            "+mean", the mean over all tokens of the layer is concatenated, with the same map; with "+static",
            whitened token embeddings are. Either doubles the width. "@256" at the end keeps the first 256 principal
            directions of the result.
        normalize: whether vectors are scaled to length 1.
        template: text before and after every text, with `{text}` in its place, such as "query: {text}"; or the name of
            a known template, such as "prompteol".
        max_length: longest input in tokens; None for the model's own limit.
    """

    transform: str = "none"
    normalize: bool = False
    template: str = ""
    max_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if split_transform(self.transform).beside == MEAN and self.pooling in ("mean", SHIPPED):
            raise InputError(
                f"transform {self.transform} puts the mean beside another pooling: use it with pooling last, first or "
                f"max, not {self.pooling}"
            )
        object.__setattr__(self, "template", canonical_template(self.template))
        if self.max_length is not None:
            object.__setattr__(self, "max_length", require_max_length("max_length", self.max_length))

    @property
    def readout(self) -> Readout:
        """The vector before the map."""
        return Readout(self.layer, self.norm, self.tokens, self.pooling)

    @property
    def static(self) -> bool:
        """True if token embeddings are concatenated with the layer's vector."""
        return split_transform(self.transform).beside == STATIC

    @property
    def dims(self) -> int | None:
        """How many principal directions are kept; None for all."""
        return split_transform(self.transform).dims

    @property
    def parts(self) -> tuple[tuple[Readout, str], ...]:
        """The readouts that are concatenated, each with the name of its map."""
        map_name, beside, _ = split_transform(self.transform)
        if beside == STATIC:
            token_embeddings = replace(self.readout, layer=0, norm="raw", pooling="mean")
            return (self.readout, map_name), (token_embeddings, "whiten")
        if beside == MEAN:
            return (self.readout, map_name), (replace(self.readout, pooling="mean"), map_name)
        return ((self.readout, map_name),)

    @property
    def shipped(self) -> bool:
        """True for the model's own output, before any linear map."""
        return self.norm == SHIPPED

    def to_json(self) -> str:
        """The recipe as JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; raises InputError if it is not a recipe.

        Args:
            text: the JSON text.
        """
        try:
            return cls.from_record(json.loads(text), "the recipe")
        except (ValueError, RunError) as error:
            names = ", ".join(f.name for f in fields(cls))
            raise InputError(f"not a recipe: {error}; the fields are {names}") from None

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str) -> Self:
        """Reads a JSON object; raises RunError if it is not a recipe, or has an unknown or mistyped field.

        Args:
            record: the object.
            where: its file, for error messages.
        """
        require_shape(record, dict, where)
        require_shape(record, RECIPE_SHAPE, where)
        unknown = set(record) - {f.name for f in fields(cls)}
        if unknown or "layer" not in record:
            problem = f"cannot have the field {', '.join(sorted(map(repr, unknown)))}" if unknown else "needs a layer"
            raise RunError(f"{where} is damaged: a recipe {problem}")
        return cls(**record)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a recipe from a JSON file, from the answer of `pick`, or from a folder made by `export`.

        Args:
            path: the file or folder.
        """
        path = Path(path) / "layerwise.json" if Path(path).is_dir() else Path(path)
        try:
            record = parse_record(path.read_bytes(), str(path))
        except (OSError, RunError) as error:
            raise InputError(f"{path} contains no recipe ({error})") from None
        return cls.from_record(record.get("recipe", record), str(path))

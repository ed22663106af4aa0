"""Recipe: what a user deploys. A layer is only part of it: tokens, pooling and a linear map matter as much."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from layerwise.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """How a text becomes a vector. `transform` names a linear map fitted without labels, such as remove_top:3."""

    layer: int
    readout: str = "raw"
    tokens: str = "all"
    pooling: str = "mean"
    transform: str = "none"
    normalize: bool = False
    prompt: str = ""
    max_length: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            told: Any = json.loads(text)
            return cls(**told)
        except (ValueError, TypeError) as error:
            fields = ", ".join(cls.__dataclass_fields__)
            raise InputError(f"not a recipe: {error}; it has the fields {fields}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_json(Path(path).read_text(encoding="utf-8"))

"""The interface of an export format: check support, save a recipe, and load it again to encode texts or images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from layerwise.core.recipe import Recipe
from layerwise.maps.linear import LinearMap
from layerwise.models.network import Network

BATCH_SIZE = 8  # texts; small enough that the certificate includes several padded batches


@dataclass(frozen=True)
class ExportJob:
    """What to save: the recipe of a network and its linear map, if any. `mode`: portable or compact."""

    network: Network
    recipe: Recipe
    linear: LinearMap | None
    max_length: int  # maximum input length in tokens
    mode: str = "portable"
    original: Network | None = None  # what a smaller network was made from; None: the network itself
    coordinates: str = ""  # why its vectors are in other coordinates than the original's; "" if they are in the same
    logits: bool = False  # it gives logits of classes, which cannot be compared with the original's vectors

    @property
    def whole(self) -> Network:
        """The model that vectors, times and sizes are compared with."""
        return self.original or self.network


class Encoder(Protocol):
    """An exported model, loaded again."""

    @property
    def model(self) -> Any:
        """The object that `export` returns."""

    @property
    def parameters(self) -> int:
        """The number of parameters."""

    def encode(self, texts: Sequence[Any], batch_size: int = BATCH_SIZE) -> Tensor:
        """One row per text (N, E), on the CPU; with the recipe's template around each text. Or per image."""


@dataclass(frozen=True)
class Variant:
    """A smaller file beside the one that is checked. Its vectors are compared and reported, whatever they are."""

    file: str  # its path in the folder
    load: Callable[[], Encoder]


@dataclass(frozen=True)
class SavedExport:
    """What a backend reports about the folder it wrote, for the record and the model card."""

    loading_code: str  # code that loads the folder (as PATH) and encodes a text
    loading_language: str = "python"  # of that code
    requirements: str = ""  # required versions, as text
    blocks: int = 0  # number of the model's blocks in the folder; 0 if unknown
    library: str | None = None  # the hub's name for the library that loads it
    packages: Sequence[str] = ()  # packages whose versions affect the vectors
    record: Mapping[str, Any] = field(default_factory=dict)  # further fields of layerwise.json
    notes: Sequence[str] = ()  # further lines of the model card
    tolerance: float | None = None  # largest difference that is kept, relative to the largest entry; None: the usual
    min_cosine: float | None = None  # if set, the cosine is checked instead: for weights in half precision
    variants: Mapping[str, Variant] = field(default_factory=dict)  # smaller files, by name


class Backend(Protocol):
    """An export format. Every backend is verified the same way: its encoder must reproduce the measured vectors."""

    @property
    def name(self) -> str:
        """The name that selects it."""

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises ExportError or InputError, before anything is computed, if this format does not support the recipe."""

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Writes the recipe to an empty folder."""

    def load(self, folder: Path, device: torch.device) -> Encoder:
        """Loads the folder's model on that device."""

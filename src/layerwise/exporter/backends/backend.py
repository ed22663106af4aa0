"""What an export format must do: say what it cannot hold, save a recipe, and load it again to encode texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from layerwise.core.recipe import Recipe
from layerwise.maps.linear import LinearMap
from layerwise.models.network import Network


@dataclass(frozen=True)
class ExportJob:
    """What is to be saved: a recipe and its linear map, if it has one, of this network. `mode`: portable or compact."""

    network: Network
    recipe: Recipe
    linear: LinearMap | None
    max_length: int  # longest input in tokens
    mode: str = "portable"


@dataclass(frozen=True)
class SavedExport:
    """What a backend reports of the folder that it wrote, for the record and the model card."""

    loading_code: str  # Python that loads the folder, written as PATH, and encodes a text
    requirements: str = ""  # versions that a reader must have, as a sentence
    blocks: int = 0  # of the model, that are in the folder; 0 where that cannot be said
    library: str | None = None  # the hub's name of the library that loads it
    packages: Sequence[str] = ()  # whose versions decide what the folder gives
    record: Mapping[str, Any] = field(default_factory=dict)  # further facts for layerwise.json
    notes: Sequence[str] = ()  # further lines of the model card


class Encoder(Protocol):
    """An exported model, loaded again."""

    @property
    def model(self) -> Any:
        """What `export` returns to its caller."""

    @property
    def parameters(self) -> int:
        """How many weights it has."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """One row (N, E) per text, on the CPU; the recipe's prompt is put before each text."""


class Backend(Protocol):
    """An export format. Every backend is certified alike: the encoder must give the vectors that were measured."""

    @property
    def name(self) -> str:
        """The word that chooses it."""

    def check_supported(self, network: Network, recipe: Recipe, mode: str) -> None:
        """Raises before anything is computed: ExportError or InputError for what this format cannot hold."""

    def save(self, job: ExportJob, folder: Path) -> SavedExport:
        """Writes the recipe into an empty folder."""

    def load(self, folder: Path, device: torch.device) -> Encoder:
        """The folder's model on that device."""

"""Single weights of a model, read from its safetensors files by name."""

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from layerwise.core.errors import ModelError
from layerwise.core.mapped_tensors import Place, places_in
from layerwise.models.fingerprint import WEIGHTS, WEIGHTS_INDEX, local_file
from layerwise.models.network import Network
from layerwise.models.shipped import read_object
from layerwise.models.spec import ModelSpec


class StoredWeights:
    """The weight files of a model."""

    def __init__(self, spec: ModelSpec, network: Network) -> None:
        self.name = spec.name
        self.prefix = getattr(network.module, "base_model_prefix", "")  # before the names of a body that has a head
        self.places = places_of_weights(spec, network.shipped.transformer if network.shipped else "")

    def stored_name(self, name: str) -> str | None:
        return next((one for one in (name, f"{self.prefix}.{name}") if one in self.places), None)

    def has(self, name: str) -> bool:
        return self.stored_name(name) is not None

    def read(self, names: Iterable[str], dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        """The weights of these names."""
        found = {}
        for name in names:
            stored = self.stored_name(name)
            if stored is None:
                raise ModelError(
                    f"no weight file of {self.name!r} holds {name}, under this name or as {self.prefix}.{name}: "
                    "transformers renames the weights of this architecture, so single ones cannot be read"
                )
            weight = mapped(self.places[stored])
            found[name] = weight.to(device, dtype if weight.is_floating_point() else weight.dtype)
        return found


def mapped(place: Place) -> Tensor:
    """A tensor whose memory is the file: it must not be changed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(place.array())
    return tensor.view(torch.bfloat16) if place.type_name == "BF16" else tensor


def places_of_weights(spec: ModelSpec, subfolder: str) -> dict[str, Place]:
    """Where each stored weight lies, by its name."""
    files = [local_file(spec.name, spec.revision, WEIGHTS, subfolder)]
    if files[0] is None:
        index = read_object(spec.name, spec.revision, WEIGHTS_INDEX, subfolder) or {}
        names = sorted(set(index.get("weight_map", {}).values()))
        files = [local_file(spec.name, spec.revision, name, subfolder) for name in names]
    try:
        return {name: place for path in files if path is not None for name, place in places_in(path).items()}
    except ValueError as error:
        raise ModelError(str(error)) from error

"""Single weights of a model, read from its safetensors files by name."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from layerwise.core.errors import ModelError
from layerwise.models.fingerprint import WEIGHTS, WEIGHTS_INDEX, local_file
from layerwise.models.shipped import read_object
from layerwise.models.spec import ModelSpec


def read_weights(spec: ModelSpec, subfolder: str, names: Iterable[str], prefix: str) -> dict[str, Tensor]:
    """The weights of these names of a module. `prefix` is what a model with a head puts before them in its files."""
    files = files_by_weight(spec, subfolder)
    found = {}
    for name in names:
        stored = next((one for one in (name, f"{prefix}.{name}") if one in files), None)
        if stored is None:
            raise ModelError(
                f"no weight file of {spec.name!r} holds {name}, under this name or as {prefix}.{name}: transformers "
                "renames the weights of this architecture, so single ones cannot be read"
            )
        with safe_open(files[stored], "pt") as file:
            found[name] = file.get_tensor(stored)
    return found


def files_by_weight(spec: ModelSpec, subfolder: str) -> Mapping[str, Path]:
    """The file of each stored weight, by its name."""
    if (single := local_file(spec.name, spec.revision, WEIGHTS, subfolder)) is not None:
        return {name: single for name in names_in(single)}
    index = read_object(spec.name, spec.revision, WEIGHTS_INDEX, subfolder) or {}
    by_file = {
        file: local_file(spec.name, spec.revision, file, subfolder) for file in index.get("weight_map", {}).values()
    }
    return {name: path for name, file in index.get("weight_map", {}).items() if (path := by_file[file]) is not None}


def names_in(path: Path) -> list[str]:
    try:
        with safe_open(path, "pt") as file:
            return list(file.keys())
    except SafetensorError as error:
        raise ModelError(f"{path} is not a whole safetensors file: {error}") from error

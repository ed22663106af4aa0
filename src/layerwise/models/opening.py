"""Opening a model: what a user may pass as one, and the model that a record names."""

from pathlib import Path
from typing import Any, cast

from layerwise.core.checks import require_length
from layerwise.core.errors import InputError
from layerwise.models.load import (
    ModelSpec,
    Outline,
    adopt,
    load_network,
    outline_of,
    outline_of_module,
)
from layerwise.models.network import Network
from layerwise.options.model import Dtype
from layerwise.runs.identity import ModelRef


def outline_and_dtype(model: Any) -> tuple[Outline, str]:
    if isinstance(model, str | Path | ModelSpec):
        spec = as_spec(model)
        return outline_of(spec), spec.dtype
    network = adopt(model)
    outline = outline_of_module(network.module, network.preprocessor, network.shipped)
    return outline, str(network.dtype).removeprefix("torch.")


def as_spec(model: str | Path | ModelSpec) -> ModelSpec:
    return model if isinstance(model, ModelSpec) else ModelSpec(str(model))


def open_network(model: Any) -> Network:
    """A name, a folder or a spec is loaded; an object is taken as it is."""
    return load_network(as_spec(model)) if isinstance(model, str | Path | ModelSpec) else adopt(model)


def network_of_run(recorded: ModelRef, model: Any = None) -> Network:
    """The model that a run was made with, loaded as it was then; raises where it is no longer the same.

    `model` is given where the run's own name no longer leads to it. A record never allows code to run.
    """
    network = open_network(spec_of(recorded) if model is None else model)
    require_same_model(network, recorded)
    return network


def spec_of(recorded: ModelRef) -> ModelSpec:
    """What loads the model of a record again."""
    return ModelSpec(
        recorded.name,
        revision=None if Path(recorded.name).is_dir() else recorded.revision,
        dtype=cast(Dtype, recorded.dtype),  # any other word is refused
        adapter=recorded.adapter or None,
        part=recorded.part or None,
    )


def same_model(network: Network, recorded: ModelRef) -> bool:
    """True if the network is known to be the recorded model, byte by byte.

    A model that was loaded from files can be held against a record of an object, since its weights are in memory. An
    object cannot be held against a record of files: those would have to be loaded beside it.
    """
    if recorded.fingerprint.startswith("memory-"):
        return network.fingerprint_in_memory() == recorded.fingerprint
    return network.fingerprint() == recorded.fingerprint


def require_same_model(network: Network, recorded: ModelRef) -> None:
    if same_model(network, recorded):
        return
    if not network.files and recorded.fingerprint.startswith("files-"):
        raise InputError(
            f"this run was made with the files of {recorded.name}, and an object in memory cannot be compared with "
            "files: pass the model's folder or hub id"
        )
    raise InputError(
        f"{network.name} is not the model that this run was made with: its weights, config, tokenizer or type differ, "
        "or the run was made by another version of layerwise. Make the run again, or pass the right model"
    )


def longest(asked: int | None, model: Network | Outline, at_most: int | None = None) -> int:
    """The longest input in tokens: what was asked for, else what is usual for this model, or `at_most`."""
    if asked is not None and require_length("max_length", asked) > model.max_length:
        raise InputError(f"max_length {asked} is more than this model takes; use at most {model.max_length}")
    return asked if asked is not None else min(model.usual_length, at_most or model.usual_length)

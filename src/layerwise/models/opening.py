"""Arguments: what a user may pass as model, data, engine or words, made into what the rooms below take."""

from collections.abc import Mapping, Sequence
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

Words = str | Sequence[str]




def outline_and_dtype(model: Any) -> tuple[Outline, str]:
    if isinstance(model, str | Path | ModelSpec):
        spec = as_spec(model)
        return outline_of(spec), spec.dtype
    network = adopt(model)
    outline = outline_of_module(network.module, network.tokenizer, network.shipped)
    return outline, str(network.dtype).removeprefix("torch.")




def as_spec(model: str | Path | ModelSpec) -> ModelSpec:
    return model if isinstance(model, ModelSpec) else ModelSpec(str(model))


def open_network(model: Any) -> Network:
    """A name, a folder or a spec is loaded; an object is taken as it is."""
    return load_network(as_spec(model)) if isinstance(model, str | Path | ModelSpec) else adopt(model)


def network_of_run(run: Mapping[str, Any], model: Any = None) -> Network:
    """The model that a run was made with, loaded as it was then; raises where it is no longer the same.

    `model` is given where the run's own name no longer leads to it. A record never allows code to run.
    """
    record = run.get("model")
    if not isinstance(record, Mapping) or not {"name", "fingerprint"} <= set(record):
        raise InputError("run.json of this run does not say which model made it; make the run again")
    if model is None:
        folder = Path(str(record["name"])).is_dir()
        model = ModelSpec(
            str(record["name"]),
            revision=None if folder else record.get("revision"),
            dtype=cast(Dtype, record.get("dtype", "float32")),  # any other word is refused
            adapter=record.get("adapter") or None,
            part=record.get("part") or None,
        )
    network = open_network(model)
    if network.fingerprint() != record["fingerprint"]:
        raise InputError(
            f"{network.name} is not the model that this run was made with: its weights, config, tokenizer or type "
            "differ, or the run was made by another version of layerwise. Make the run again, or pass the right model"
        )
    return network












def longest(asked: int | None, model: Network | Outline, at_most: int | None = None) -> int:
    """The longest input in tokens: what was asked for, else what is usual for this model, or `at_most`."""
    if asked is not None and require_length("max_length", asked) > model.max_length:
        raise InputError(f"max_length {asked} is more than this model takes; use at most {model.max_length}")
    return asked if asked is not None else min(model.usual_length, at_most or model.usual_length)



"""Opens models: from what a user passes, or from a run record."""

import warnings
from pathlib import Path
from typing import Any, cast

from layerwise.core.checks import require_max_length
from layerwise.core.errors import InputError
from layerwise.core.preprocessors import InputKind, is_audio, is_image
from layerwise.core.progress import announce, is_announcing
from layerwise.models.elsewhere.stored import open_stored
from layerwise.models.fingerprint import parameters_in, weight_files
from layerwise.models.info import network_info
from layerwise.models.load import (
    ModelInfo,
    ModelSpec,
    input_kind_of,
    load_network,
    load_tokenizer,
    network_from_object,
    read_model_info,
    require_loadable_spec,
)
from layerwise.models.network import Network
from layerwise.models.shipped import read_shipped
from layerwise.models.spec import Dtype
from layerwise.models.static import require_layers
from layerwise.models.streamed import open_streamed
from layerwise.runs.identity import ModelRef


def model_info_and_dtype(model: Any, *, static: bool = False) -> tuple[ModelInfo, str]:
    """What is known about a model, and its dtype. `static`: whether a model without layers can be used."""
    if isinstance(model, str | Path | ModelSpec):
        spec = to_model_spec(model)
        info, name, dtype = read_model_info(spec), spec.name, str(spec.dtype)
    else:
        network = network_from_object(model)
        info, name, dtype = network_info(network), network.name, str(network.dtype).removeprefix("torch.")
    if not static:
        require_layers(info.shipped, name)
    return info, dtype


def input_kind_of_model(model: Any) -> InputKind:
    """What a model takes, without loading its weights."""
    if isinstance(model, str | Path | ModelSpec):
        return input_kind_of(to_model_spec(model))
    preprocessor = network_from_object(model).preprocessor
    return "audio" if is_audio(preprocessor) else "image" if is_image(preprocessor) else "text"


def source_options(model: Any, **options: Any) -> dict[str, Any]:
    """The options of texts with what opening data for this model needs: the kind, and a tokenizer to count tokens."""
    kind = input_kind_of_model(model)
    if kind == "text" and options.get("min_tokens"):
        options["tokenizer"] = load_tokenizer(to_model_spec(model))
    return options | {"kind": kind}


def to_model_spec(model: str | Path | ModelSpec) -> ModelSpec:
    return model if isinstance(model, ModelSpec) else ModelSpec(str(model))


def open_network(model: Any, *, static: bool = False, states_only: bool = False) -> Network:
    """Loads a name, folder or spec; wraps an object.

    `static`: whether a model without layers can be used. `states_only`: whether only hidden states are read, which may
    then come from files, or from blocks that are not all in memory.
    """
    if not isinstance(model, str | Path | ModelSpec):
        network = network_from_object(model)
    elif states_only and (spec := to_model_spec(model)).states:
        network = open_stored(spec)
    elif states_only and (spec := to_model_spec(model)).stream:
        network = open_streamed(spec)
    else:
        announce_loading(spec := to_model_spec(model))
        network = load_network(spec)
    if not static:
        require_layers(network.shipped, network.name)
    if network.shipped and (ignored := network.shipped.not_followed):
        warnings.warn(
            f"{network.name} sets {', '.join(ignored)}: the model as shipped (last) follows that, layers by number do "
            "not",
            stacklevel=2,
        )
    return network


def announce_loading(spec: ModelSpec) -> None:
    """Says which model is loaded now, and how large it is where its files are on this machine already."""
    if not is_announcing():
        return
    require_loadable_spec(spec)
    name = Path(spec.name).name if Path(spec.name).is_dir() else spec.name
    try:
        paths = [path for _, path in weight_files(spec.name, spec.revision, read_shipped(spec.name, spec.revision))]
    except OSError:  # no name of a model: loading it says so
        return
    here = [path for path in paths if path is not None]
    if not Path(spec.name).is_dir() and (len(here) < len(paths) or not here):
        announce(f"downloading {name} (--verbose or LAYERWISE_VERBOSE=1 shows how far it is)")
    else:
        count = parameters_in(here)
        announce(f"loading {name} ({in_words(count)} parameters)" if count else f"loading {name}")


def in_words(count: int) -> str:
    """A large number as people say it: 33 million."""
    for size, word in ((10**9, " billion"), (10**6, " million"), (10**3, " thousand")):
        if count >= size:
            return f"{count / size:.{1 if count < 10 * size else 0}f}{word}"
    return str(count)


def load_recorded_model(recorded: ModelRef, model: Any = None, *, states_only: bool = False) -> Network:
    """Loads the model of a run with the same settings; raises if it is no longer the same model.

    Pass `model` if the recorded name can no longer be loaded. A record never enables remote code.
    """
    network = open_network(spec_from_record(recorded) if model is None else model, static=True, states_only=states_only)
    require_same_model(network, recorded)
    return network


def spec_from_record(recorded: ModelRef) -> ModelSpec:
    """The spec that loads the recorded model again."""
    return ModelSpec(
        recorded.name,
        revision=None if Path(recorded.name).is_dir() else recorded.revision,
        dtype=cast(Dtype, recorded.dtype),  # other values are rejected
        adapter=recorded.adapter or None,
        part=recorded.part or None,
    )


def is_recorded_model(network: Network, recorded: ModelRef) -> bool:
    """True if the network is the recorded model, by fingerprint.

    A model loaded from files can be compared with the record of an object, since its weights are in memory. An object
    cannot be compared with the record of files: the files would have to be loaded as well. Which engine computed the
    hidden states of the record does not matter.
    """
    if recorded.engine:
        return network.identity().computed_by(recorded.engine).fingerprint == recorded.fingerprint
    if recorded.fingerprint.startswith("memory-"):
        return network.fingerprint_in_memory() == recorded.fingerprint
    return network.fingerprint() == recorded.fingerprint


def require_same_model(network: Network, recorded: ModelRef) -> None:
    if is_recorded_model(network, recorded):
        return
    if not network.files_hash and recorded.fingerprint.startswith("files-"):
        raise InputError(
            f"this run was made with the files of {recorded.name}, but an object in memory cannot be compared with "
            "files: pass the model's folder or hub id"
        )
    raise InputError(
        f"{network.name} is not the model of this run: its weights, config, tokenizer or dtype differ, "
        "or the run was made by another version of layerwise. Repeat the run, or pass the right model"
    )


def resolve_max_length(max_length: int | None, model: Network | ModelInfo, default_limit: int | None = None) -> int:
    """The maximum input length in tokens: the requested one, or the model's default, limited by `default_limit`."""
    if max_length is not None and require_max_length("max_length", max_length) > model.max_length:
        raise InputError(f"max_length {max_length} is more than this model supports; use at most {model.max_length}")
    return max_length if max_length is not None else min(model.default_length, default_limit or model.default_length)

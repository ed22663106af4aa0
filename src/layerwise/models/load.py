"""Loads a Network from a hub id, a folder or objects in memory. safetensors only; no remote code unless allowed.

A model is built from its config before any weights are read, so an untrusted config has limits.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerwise.core.errors import InputError, MissingExtra, ModelError
from layerwise.core.hashes import KnownHashes
from layerwise.core.preprocessors import DEFAULT_MAX_LENGTH as DEFAULT_MAX_LENGTH
from layerwise.core.preprocessors import NO_LIMIT, InputKind, is_tokenizer
from layerwise.core.quiet import quiet_libraries
from layerwise.models.adapters import load_with_adapter
from layerwise.models.explain import (
    ADDED_TOKENS_FILES,
    explain_load_error,
    require_extractor_files,
    require_plain_fields,
    require_tokenizer_files,
    require_vocabulary,
)
from layerwise.models.families.configs import max_positions
from layerwise.models.find_blocks import find_structure
from layerwise.models.fingerprint import weight_files, weight_files_hash
from layerwise.models.head import Head, head_from_model, load_head
from layerwise.models.info import ModelInfo as ModelInfo
from layerwise.models.info import network_info
from layerwise.models.location import located
from layerwise.models.network import Network
from layerwise.models.parts import (
    backbone,
    default_part,
    inner_module,
    input_kind,
    is_sentence_transformer,
    part_class,
    require_readable,
    require_text_class,
)
from layerwise.models.preprocessing import (
    audio_preprocessor,
    image_preprocessor,
    is_feature_extractor,
    is_image_processor,
    lowercasing,
    require_pillow,
    with_right_padding,
)
from layerwise.models.quantized import quantization_of, require_package
from layerwise.models.shipped import Shipped, default_pooling, read_object, read_shipped
from layerwise.models.spec import ModelSpec as ModelSpec
from layerwise.models.static import is_static, load_static, static_from_object
from layerwise.runs.identity import ModelRef
from layerwise.runs.summary import counted


def pick_device(device: str) -> torch.device:
    """`auto` is the machine's accelerator, or the CPU if there is none."""
    if device == "auto":
        return torch.device(next((one.type for one in accelerators()), "cpu"))
    try:
        return torch.device(device)
    except RuntimeError:
        raise InputError(f"torch knows no device {device!r}; use cpu, cuda, cuda:1, mps or auto") from None


def require_device(device: torch.device) -> torch.device:
    """Raises for a device that is not there; the workers of a cluster may have one that this machine lacks."""
    if not has_device(device):
        names = ", ".join(["cpu", *map(str, accelerators())])
        raise InputError(f"cannot use device {str(device)!r}: this machine has {names}, as far as torch can use it")
    return device


def has_device(device: torch.device) -> bool:
    """True if this machine has the device, and this build of torch can use it."""
    found = (one.type == device.type and device.index in (None, one.index) for one in accelerators())
    return device.type == "cpu" or any(found)


def accelerators() -> list[torch.device]:
    """The accelerators that this machine has and this build of torch can use, such as cuda:0 and cuda:1."""
    kind = torch.accelerator.current_accelerator()
    if kind is None or not torch.accelerator.is_available():
        return []
    return [torch.device(kind.type, index) for index in range(torch.accelerator.device_count())]


# The deepest models have a few hundred blocks. A config with 200,000 would only exhaust memory.
MAX_BLOCKS = 2000
COUNT_FIELD = re.compile(r"(n|num)_(\w+_)?(layers?|blocks?|experts)|(encoder|decoder)_layers")


def require_buildable(config: Any, name: str) -> None:
    """Raises if a config asks for more blocks, or experts per block, than any real model has."""
    fields = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    for field, number in counts_in(fields):
        if number > MAX_BLOCKS:
            raise ModelError(
                f"the config.json of {name!r} has {field} = {number:,}; models with more than {MAX_BLOCKS:,} are "
                "refused. Is the file damaged?"
            )


def counts_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """All numbers of blocks or experts, including those of nested configs."""
    for field, value in fields.items():
        if isinstance(value, Mapping):
            yield from counts_in(value)
        elif isinstance(value, int) and COUNT_FIELD.fullmatch(field):
            yield field, value


PREPROCESSORS: dict[InputKind, str] = {
    "text": "tokenizer", "audio": "feature extractor", "image": "image processor"
}  # fmt: skip
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@quiet_libraries()
def load_network(spec: ModelSpec, known_hashes: KnownHashes | None = None) -> Network:
    """Loads a model in evaluation mode on its device, with its tokenizer and shipped modules.

    Args:
        spec: name, type, device and adapter of the model.
        known_hashes: hashes of its files that another process computed, so that the files are not read again for them.

    Raises:
        ModelError: there is no such model, or it cannot be read layer by layer.
        InputError: the device or the revision cannot be used.
        MissingExtra: `device_map` or an adapter needs a package that is not installed.
    """
    require_loadable_spec(spec)
    if spec.states:
        raise InputError("stored hidden states (--states) are read by scan and embed alone, with the local engine")
    if spec.stream:
        raise InputError(
            "--stream is for verbs that read hidden states alone: scan, embed, eval, pick; it cannot be used here"
        )
    device = None if spec.device_map else require_device(pick_device(spec.device))
    with located(spec.name, spec.revision):
        return load_located(spec, device, known_hashes)


def load_located(spec: ModelSpec, device: torch.device | None, known: KnownHashes | None) -> Network:
    """The model of a spec whose files are known to be there."""
    from transformers import AutoModel

    shipped = read_shipped(spec.name, spec.revision)
    if shipped is not None and shipped.static:
        return load_static(spec, shipped, known)
    subfolder = shipped.transformer if shipped else ""
    config = load_config(spec, subfolder)  # refuses configs that cannot be built
    require_package(config, spec.name)
    preprocessor = read_preprocessor(spec, config, shipped)
    options: dict[str, Any] = {"dtype": DTYPES[spec.dtype], "use_safetensors": True}
    if spec.device_map:
        options["device_map"] = spec.device_map
    missing: dict[str, nn.Parameter] = {}

    def load(auto: Any) -> nn.Module:
        module, info = from_pretrained(auto, spec, subfolder, output_loading_info=True, **options)
        missing.clear()
        missing.update({name: w for name, w in module.named_parameters() if name in info["missing_keys"]})
        for weight in missing.values():  # often a pooler: otherwise it is random, and the model differs on every load
            torch.nn.init.zeros_(weight)
        return module  # type: ignore[no-any-return]

    module = load_with_adapter(load, spec.adapter) if spec.adapter else load(AutoModel)
    if device is not None:
        try:
            module = module.to(device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"cannot use device {spec.device!r}: {error}") from None
    head = load_head(shipped, spec.name, spec.revision) if shipped else None
    if head is not None:
        head.difference = "its adapter" if spec.adapter else "" if spec.dtype == "float32" else f"dtype {spec.dtype}"
    files = weight_files_hash(spec.name, spec.revision, shipped, spec.adapter, known) or ""
    revision = loaded_revision(module, spec)
    network = build_network(module.eval(), preprocessor, spec.name, spec.part, revision, head, files)
    network.adapter = spec.adapter or ""
    read = used_weights(network) if missing else set()
    if lacking := [name for name, weight in missing.items() if id(weight) in read]:
        raise ModelError(
            f"{spec.name!r} is missing {counted(len(lacking), 'weight')} of its layers, such as {lacking[0]}: they "
            "are not in its safetensors files. A file is truncated, or config.json belongs to another model"
        )
    return network


@quiet_libraries()
def identity_from_files(spec: ModelSpec) -> ModelRef | None:
    """The identity that the model of a spec will have once it is loaded, found without reading a weight.

    None where only loading can tell: some of its files are not on this machine, or an adapter changes its weights.
    """
    network = load_without_weights(spec)
    return None if network is None else network.identity()


def load_without_weights(
    spec: ModelSpec, building: AbstractContextManager[Any] | None = None, known_hashes: KnownHashes | None = None
) -> Network | None:
    """The network of a spec without memory for weights, with the identity that it has once they are loaded.

    It is built on the meta device, or inside the context `building`. None where only loading can tell: some of its
    files are not on this machine, or an adapter changes its weights.
    """
    require_loadable_spec(spec)
    shipped = read_shipped(spec.name, spec.revision)
    files = weight_files_hash(spec.name, spec.revision, shipped, spec.adapter, known_hashes)
    if files is None or spec.adapter:
        return None
    subfolder = shipped.transformer if shipped else ""
    config = load_config(spec, subfolder)
    preprocessor = read_preprocessor(spec, config, shipped)
    module = build_without_weights(config, spec, building)
    head = load_head(shipped, spec.name, spec.revision) if shipped else None
    revision = loaded_revision(module, spec)
    return build_network(module.eval(), preprocessor, spec.name, spec.part, revision, head, files)


def require_loadable_spec(spec: ModelSpec) -> None:
    """Raises for problems that can be detected before anything is loaded."""
    if spec.device_map and find_spec("accelerate") is None:
        raise MissingExtra("device_map needs accelerate: pip install accelerate")
    if spec.revision not in (None, "main") and Path(spec.name).is_dir():
        raise InputError(
            f"{spec.name!r} is a folder, and folders have no revisions, so {spec.revision!r} would have no effect; "
            "pass the folder of that checkpoint"
        )


def used_weights(network: Network) -> set[int]:
    """The ids of all weights that affect hidden states.

    These are all weights of the module that contains the blocks, and all before it. If that is the model itself,
    poolers and the like come after the blocks, and only the final norm among them is used.
    """
    parent_path = network.structure.path.rpartition(".")[0]
    norm = network.structure.final_norm
    owners = [network.module.get_submodule(parent_path)] if parent_path else [*network.structure.blocks]
    block_weights = {id(weight) for owner in owners for weight in owner.parameters()}
    order = [id(weight) for weight in network.module.parameters()]
    last_index = max(index for index, weight in enumerate(order) if weight in block_weights)
    return {*order[: last_index + 1], *(id(weight) for weight in (norm.parameters() if norm is not None else ()))}


def load_tokenizer(spec: ModelSpec) -> Any:
    """The tokenizer of a model that is not loaded otherwise."""
    with located(spec.name, spec.revision):
        shipped = read_shipped(spec.name, spec.revision)
        return read_tokenizer(spec, shipped)


def read_preprocessor(spec: ModelSpec, config: Any, shipped: Shipped | None) -> Any:
    """Loads what makes the inputs of the model or part: a tokenizer, a feature extractor or an image processor."""
    from transformers import AutoFeatureExtractor, AutoImageProcessor

    subfolder = shipped.transformer if shipped else ""
    model_class, config = part_class(config, spec.part, trust_remote_code=spec.trust_remote_code)
    if model_class is None or (kind := input_kind(model_class, spec.name)) == "text":
        return read_tokenizer(spec, shipped)
    if kind == "image":
        require_pillow(spec.name)
        require_extractor_files(spec.name, "images", "AutoImageProcessor", subfolder)
        # Pillow, whether or not torchvision is installed: their pixels differ.
        processor = from_pretrained(AutoImageProcessor, spec, subfolder, backend="pil")
        return image_preprocessor(processor, model_class, config, spec.name)
    require_extractor_files(spec.name, "audio", "AutoFeatureExtractor", subfolder)
    extractor = from_pretrained(AutoFeatureExtractor, spec, subfolder)
    return audio_preprocessor(extractor, model_class, config, spec.name)


def input_kind_of(spec: ModelSpec) -> InputKind:
    """What the model takes, from its config alone."""
    with located(spec.name, spec.revision):
        shipped = read_shipped(spec.name, spec.revision)
        if shipped is not None and shipped.static:
            return "text"
        config = load_config(spec, shipped.transformer if shipped else "")
    model_class, _ = part_class(config, spec.part, trust_remote_code=spec.trust_remote_code)
    return "text" if model_class is None else input_kind(model_class, spec.name)


def read_tokenizer(spec: ModelSpec, shipped: Shipped | None) -> Any:
    """Loads the tokenizer; raises if there is none, since transformers would create one without a vocabulary."""
    from transformers import AutoTokenizer

    subfolder = shipped.transformer if shipped else ""
    require_tokenizer_files(spec.name, subfolder)
    for file in ADDED_TOKENS_FILES:
        require_plain_fields(read_object(spec.name, spec.revision, file, subfolder), f"{file} of {spec.name!r}")
    tokenizer = from_pretrained(AutoTokenizer, spec, subfolder)
    require_vocabulary(tokenizer, spec.name)
    return lowercasing(tokenizer) if shipped and shipped.lowercase else tokenizer


def load_config(spec: ModelSpec, subfolder: str = "") -> Any:
    """Loads only the config, for planning before any weights are read."""
    from transformers import AutoConfig

    config = from_pretrained(AutoConfig, spec, subfolder)
    require_buildable(config, spec.name)
    return config


def from_pretrained(auto_class: Any, spec: ModelSpec, subfolder: str = "", **options: Any) -> Any:
    """Calls transformers' from_pretrained and explains its errors."""
    if subfolder:
        options["subfolder"] = subfolder
    try:
        with quiet_libraries():
            return auto_class.from_pretrained(
                spec.name, revision=spec.revision or "main", trust_remote_code=spec.trust_remote_code, **options
            )
    except Exception as error:  # of any kind: it parses files of strangers
        raise explain_load_error(spec.name, spec.revision, subfolder, error) from error


def build_without_weights(config: Any, spec: ModelSpec, building: AbstractContextManager[Any] | None = None) -> Any:
    """Builds the model of a config on the meta device, which takes no memory, or in a context; explains errors."""
    from transformers import AutoModel

    build: Any = AutoModel.from_config
    try:
        with building or torch.device("meta"):
            return build(config, dtype=DTYPES[spec.dtype], trust_remote_code=spec.trust_remote_code)
    except Exception as error:  # of any kind: it computes with the values of a stranger's config
        raise explain_load_error(spec.name, spec.revision, "", error) from error


def loaded_revision(module: nn.Module, spec: ModelSpec) -> str:
    """The loaded commit if the hub reports it, otherwise the requested revision."""
    return str(getattr(getattr(module, "config", None), "_commit_hash", None) or spec.revision or "main")


def build_network(
    module: nn.Module,
    preprocessor: Any,
    name: str,
    part: str | None = None,
    revision: str = "main",
    head: Head | None = None,
    files_hash: str = "",
) -> Network:
    """Builds a Network from a model object and its preprocessor, without a language model head."""
    part = part or default_part(module, preprocessor)
    module = backbone(module, part)
    if is_tokenizer(preprocessor):
        require_text_class(type(module), name)
    shipped = head.shipped if head else None
    structure = find_structure(module, module.config)
    max_length = max_input_length(preprocessor, module.config, shipped)
    if is_tokenizer(preprocessor):
        preprocessor = with_right_padding(preprocessor)
    default = default_length(shipped, max_length)
    return Network(
        name,
        revision,
        module,
        preprocessor,
        structure,
        max_length,
        default,
        head,
        part=part or "",
        files_hash=files_hash,
    )


def default_length(shipped: Shipped | None, max_length: int) -> int:
    """The default maximum length in tokens: the model's shipped setting, or its limit."""
    return min(shipped.max_length or max_length, max_length) if shipped else max_length


def max_input_length(preprocessor: Any, config: Any, shipped: Shipped | None) -> int:
    """The maximum input length in tokens that both preprocessor and positions allow.

    A length that the model ships may be above that of its tokenizer; sentence-transformers then uses the former.
    """
    positions, own_length = max_positions(config), (shipped.max_length if shipped else None) or 0
    tokenizer_limit = max(getattr(preprocessor, "model_max_length", NO_LIMIT), own_length)
    return int(min(tokenizer_limit, NO_LIMIT if positions is None else positions, NO_LIMIT))


def network_from_object(model: Any, part: str | None = None) -> Network:
    """Builds a Network from (module, tokenizer or processor), a SentenceTransformer, or a transformers model."""
    head: Head | None = None
    if isinstance(model, Network):
        return model
    if is_static(model):
        return static_from_object(model)
    if isinstance(model, tuple) and len(model) == 2:
        module, preprocessor = model
    elif is_sentence_transformer(model):
        module, preprocessor = inner_module(model), model.tokenizer
        head = head_from_model(model)
    elif isinstance(model, nn.Module) and (name := getattr(model, "name_or_path", "")):
        module, preprocessor = model, preprocessor_by_name(input_kind(type(backbone(model, part)), name), name)
    elif isinstance(model, nn.Module):
        raise InputError(
            f"this {type(model).__name__} was not loaded from a folder or the hub, so its tokenizer is not known: pass "
            "both, as a pair (model, tokenizer). For audio it is a feature extractor, for images an image processor"
        )
    else:
        raise InputError(
            f"cannot read a {type(model).__name__}; pass a name, a folder, a transformers model, a "
            "SentenceTransformer, a pair (module, tokenizer) or a pair (module, processor)"
        )
    name = getattr(module, "name_or_path", "") or type(module).__name__
    require_readable(module)
    if is_tokenizer(preprocessor):
        require_vocabulary(preprocessor, name)
    elif is_feature_extractor(preprocessor):
        stack = backbone(module, part)
        preprocessor = audio_preprocessor(preprocessor, type(stack), stack.config, name)
    elif is_image_processor(preprocessor):
        stack = backbone(module, part)
        preprocessor = image_preprocessor(preprocessor, type(stack), stack.config, name)
    elif not callable(getattr(preprocessor, "identity", None)):
        raise InputError(
            f"cannot make inputs for {name} with a {type(preprocessor).__name__}: pass a tokenizer, a feature "
            "extractor or an image processor with the module, or your own processor with an identity() method that "
            "returns a string identifying its settings"
        )
    return build_network(module, preprocessor, name, part, head=head)


def preprocessor_by_name(kind: InputKind, name: str) -> Any:
    """What makes the inputs of a model object, loaded from where the model came from."""
    from transformers import AutoFeatureExtractor, AutoImageProcessor, AutoTokenizer

    classes = {"text": AutoTokenizer, "audio": AutoFeatureExtractor, "image": AutoImageProcessor}
    auto: Any = classes[kind]
    if kind == "image":
        require_pillow(name)
    try:
        return auto.from_pretrained(name, **({"backend": "pil"} if kind == "image" else {}))
    except Exception as error:  # of any kind: it parses files of strangers
        raise InputError(
            f"{name!r}, where this model came from, has no {PREPROCESSORS[kind]} that can be loaded; pass both, as a "
            f"pair (model, {PREPROCESSORS[kind]})"
        ) from error


def read_model_info(spec: ModelSpec) -> ModelInfo:
    """Uses config and tokenizer only: the model is built on the meta device, without memory."""
    require_loadable_spec(spec)
    with located(spec.name, spec.revision):
        shipped = read_shipped(spec.name, spec.revision)
        if shipped is not None and shipped.static:
            return network_info(load_static(spec, shipped))
        subfolder = shipped.transformer if shipped else ""
        config = load_config(spec, subfolder)
        preprocessor = read_preprocessor(spec, config, shipped)
    module = build_without_weights(config, spec)
    module = backbone(module, spec.part or default_part(module, preprocessor))
    if is_tokenizer(preprocessor):
        require_text_class(type(module), spec.name)
    quantized_bytes = 0
    if quantization_of(config):
        paths = [path for _, path in weight_files(spec.name, spec.revision, shipped) if path is not None]
        quantized_bytes = sum(path.stat().st_size for path in paths)
    return replace(module_info(module, preprocessor, shipped), quantized_bytes=quantized_bytes)


def module_info(module: Any, preprocessor: Any, shipped: Shipped | None = None) -> ModelInfo:
    structure = find_structure(module, module.config)
    parameters = sum(p.numel() for p in module.parameters())
    max_length = max_input_length(preprocessor, module.config, shipped)
    default = default_length(shipped, max_length)
    pooling = default_pooling(module.config)
    return ModelInfo(structure, parameters, max_length, default, preprocessor, shipped, pooling)

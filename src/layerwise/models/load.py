"""Loading: a hub id, a folder or objects in memory become a Network. safetensors only, no remote code unless asked."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerwise.errors import InputError, MissingExtra, ModelError
from layerwise.models.anatomy import find_anatomy
from layerwise.models.limits import require_buildable
from layerwise.models.network import Network

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
LONGEST_DEFAULT = 512


@dataclass(frozen=True)
class ModelSpec:
    """Which model to load and how; enough to load the same one again in another process."""

    name: str
    revision: str | None = None
    dtype: str = "float32"
    device: str = "auto"
    device_map: str | None = None
    trust_remote_code: bool = False
    adapter: str | None = None
    part: str | None = None


def load_network(spec: ModelSpec) -> Network:
    """The model of a spec, in evaluation mode, on its device, with its tokenizer."""
    from transformers import AutoModel

    if spec.dtype not in DTYPES:
        raise InputError(f"dtype {spec.dtype!r} is not one of {', '.join(DTYPES)}")
    if spec.device_map and find_spec("accelerate") is None:
        raise MissingExtra("device_map needs accelerate: pip install accelerate")
    load_config(spec)  # what cannot be built is refused before it is tried
    options: dict[str, Any] = {"dtype": DTYPES[spec.dtype], "use_safetensors": True}
    if spec.device_map:
        options["device_map"] = spec.device_map
    module, told = from_pretrained(AutoModel, spec, output_loading_info=True, **options)
    missing = {name: weight for name, weight in module.named_parameters() if name in told["missing_keys"]}
    for weight in missing.values():  # a pooler, often: else it is random, and the model another one at every load
        torch.nn.init.zeros_(weight)
    if spec.adapter:
        module = with_adapter(module, spec.adapter)
    if not spec.device_map:
        try:
            module = module.to(pick_device(spec.device))
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"cannot use device {spec.device!r}: {error}") from None
    network = as_network(module.eval(), load_tokenizer(spec), spec.name, spec.part, revision_of(module, spec))
    read = weights_read(network) if missing else set()
    if lacking := [name for name, weight in missing.items() if id(weight) in read]:
        raise ModelError(
            f"{spec.name!r} lacks {len(lacking)} weights of its layers, such as {lacking[0]}: they are not in its "
            "safetensors. The file is cut off, or belongs to another config.json"
        )
    return network


def weights_read(network: Network) -> set[int]:
    """The ids of all weights that decide hidden states.

    These are all of the module that holds the blocks and all that come before it. Where the model itself holds them,
    it registers poolers and the like behind its blocks, and only the final norm is read of what comes there.
    """
    inside = network.anatomy.path.rpartition(".")[0]
    norm = network.anatomy.final_norm
    owners = [network.module.get_submodule(inside)] if inside else [*network.anatomy.blocks]
    held = {id(weight) for owner in owners for weight in owner.parameters()}
    order = [id(weight) for weight in network.module.parameters()]
    end = max(at for at, weight in enumerate(order) if weight in held)
    return {*order[: end + 1], *(id(weight) for weight in (norm.parameters() if norm is not None else ()))}


def load_tokenizer(spec: ModelSpec) -> Any:
    from transformers import AutoTokenizer

    return from_pretrained(AutoTokenizer, spec)


def load_config(spec: ModelSpec) -> Any:
    """The config alone: what a plan needs before any weight is read."""
    from transformers import AutoConfig

    config = from_pretrained(AutoConfig, spec)
    require_buildable(config, spec.name)
    return config


def from_pretrained(auto: Any, spec: ModelSpec, **options: Any) -> Any:
    """transformers' own loader, its many errors told as one with the mend."""
    try:
        return auto.from_pretrained(
            spec.name, revision=spec.revision or "main", trust_remote_code=spec.trust_remote_code, **options
        )
    except (OSError, ValueError, ImportError) as error:
        if not Path(spec.name).exists() and (spec.name.startswith((".", "/", "~")) or spec.name.count("/") > 1):
            near = get_close_matches(Path(spec.name).name, (p.name for p in Path(spec.name).parent.glob("*")), 1)
            raise ModelError(f"no folder {spec.name!r}" + (f"; did you mean {near[0]}?" if near else "")) from None
        raise ModelError(
            f"cannot load {spec.name!r}: {str(error).strip()}\n"
            "It must be a hub id or a folder with config.json, model.safetensors and a tokenizer. A model that brings "
            "its own code needs --trust-remote-code; weights in .bin files must be converted to safetensors first"
        ) from error


def with_adapter(module: nn.Module, folder: str) -> nn.Module:
    """The model with a PEFT adapter merged into its weights."""
    if find_spec("peft") is None:
        raise MissingExtra("adapters need peft: pip install peft")
    from peft import PeftModel

    merged: nn.Module = PeftModel.from_pretrained(module, folder, use_safetensors=True).merge_and_unload()
    return merged


def pick_device(word: str) -> torch.device:
    """`auto` is the accelerator this machine has, else the CPU."""
    if word != "auto":
        return torch.device(word)
    accelerator = torch.accelerator.current_accelerator()
    return accelerator if accelerator is not None and torch.accelerator.is_available() else torch.device("cpu")


def revision_of(module: nn.Module, spec: ModelSpec) -> str:
    """The commit that was loaded, where the hub tells it; else what was asked for."""
    return str(getattr(getattr(module, "config", None), "_commit_hash", None) or spec.revision or "main")


def as_network(
    module: nn.Module, tokenizer: Any, name: str, part: str | None = None, revision: str = "main"
) -> Network:
    """A model object and its tokenizer as a Network; heads on top of the backbone are left out."""
    module = backbone(module, part)
    anatomy, longest = find_anatomy(module, module.config), longest_input(tokenizer, module.config)
    if tokenizer.pad_token is None:  # padding is masked, so any token will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    tokenizer.padding_side = "right"  # left padding is wrong where positions are absolute
    return Network(name, revision, module, tokenizer, anatomy, longest, frozenset(tokenizer.all_special_ids))


def backbone(module: Any, part: str | None) -> Any:
    """The part that holds the blocks: without a head, under an adapter's wrapper, or the encoder asked for."""
    if hasattr(module, "get_base_model"):  # peft
        module = module.get_base_model()
    base = getattr(module, "base_model", module)
    if part is None:
        return base
    if not isinstance(chosen := getattr(base, part, None), nn.Module):
        parts = ", ".join(name for name, _ in base.named_children())
        raise InputError(f"this model has no part {part!r}; it has {parts}")
    return chosen


def longest_input(tokenizer: Any, config: Any) -> int:
    """The longest input in tokens that both the tokenizer and the positions admit."""
    limits = [tokenizer.model_max_length]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        # RoBERTa and its kin count positions from the padding index on, so two of them are never used.
        unused = 2 if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "mpnet") else 0
        limits.append(positions - unused)
    return int(min(limits))


def adopt(model: Any, part: str | None = None) -> Network:
    """A Network from objects: (module, tokenizer), a SentenceTransformer, or a transformers model with a name."""
    from transformers import AutoTokenizer

    if isinstance(model, Network):
        return model
    if isinstance(model, tuple) and len(model) == 2:
        module, tokenizer = model
    elif isinstance(model, nn.Module) and hasattr(model, "tokenizer") and hasattr(model, "encode"):
        # A SentenceTransformer: its first module wraps the transformers model.
        first = next(iter(model.children()))
        module, tokenizer = getattr(first, "auto_model", first), model.tokenizer
    elif isinstance(model, nn.Module) and (name := getattr(model, "name_or_path", "")):
        module, tokenizer = model, AutoTokenizer.from_pretrained(name)
    else:
        raise InputError(
            f"cannot read a {type(model).__name__}; pass a name, a folder, a transformers model, a "
            "SentenceTransformer or a pair (module, tokenizer)"
        )
    name = getattr(module, "name_or_path", "") or type(module).__name__
    network = as_network(module, tokenizer, name, part)
    if hasattr(model, "max_seq_length") and model.max_seq_length:
        network.max_length = min(network.max_length, int(model.max_seq_length))
    return network


@dataclass(frozen=True)
class Outline:
    """What is known of a model before its weights are read: enough to plan with."""

    depth: int
    width: int
    parameters: int
    has_norm: bool
    max_length: int
    tokenizer: Any


def outline_of(spec: ModelSpec) -> Outline:
    """From config and tokenizer alone: the model is built on a device without memory."""
    from transformers import AutoModel

    build: Any = AutoModel.from_config
    config, tokenizer = load_config(spec), load_tokenizer(spec)
    with torch.device("meta"):
        module = backbone(build(config, trust_remote_code=spec.trust_remote_code), spec.part)
    return outline_of_module(module, tokenizer)


def outline_of_module(module: Any, tokenizer: Any) -> Outline:
    anatomy = find_anatomy(module, module.config)
    parameters = sum(p.numel() for p in module.parameters())
    longest = longest_input(tokenizer, module.config)
    return Outline(anatomy.depth, anatomy.width, parameters, anatomy.final_norm is not None, longest, tokenizer)

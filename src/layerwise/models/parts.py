"""Which stack of a model is read (`part`), and what it takes as input."""

from inspect import signature
from typing import Any

import torch
from torch import nn

from layerwise.core.errors import InputError, ModelError
from layerwise.core.preprocessors import InputKind, is_audio, is_tokenizer
from layerwise.models.explain import INPUT_KINDS, modalities_of

AUDIO_INPUTS = ("input_features", "input_values")
IMAGE_INPUT = "pixel_values"
NESTED_PARTS = ("text", "vision", "audio")  # named after the nested config of a stack


def is_sentence_transformer(model: object) -> bool:
    return isinstance(model, nn.Module) and hasattr(model, "tokenizer") and hasattr(model, "encode")


def inner_module(model: Any) -> Any:
    """The transformers model inside a SentenceTransformer, whose first module wraps it; any other model unchanged."""
    if not is_sentence_transformer(model):
        return model
    first = next(iter(model.children()))
    return getattr(first, "auto_model", first)


def backbone(module: Any, part: str | None) -> Any:
    """The submodule that contains the blocks: without head or adapter wrapper, or the requested part."""
    if hasattr(module, "get_base_model"):  # peft
        module = module.get_base_model()
    base = getattr(module, "base_model", module)
    if part is None:
        return base
    submodule = nested_part(base, part) if part in NESTED_PARTS else getattr(base, part, None)
    if not isinstance(submodule, nn.Module):
        raise InputError(f"this model has no part {part!r}; it has {', '.join(part_names(base)) or 'none'}")
    return submodule


def nested_part(base: nn.Module, part: str) -> nn.Module | None:
    """The outermost submodule with the nested config of that name, such as `text_config`; None if there is none."""
    if isinstance(named := getattr(base, part, None), nn.Module):
        return named
    nested = getattr(getattr(base, "config", None), f"{part}_config", None)
    found = (m for m in base.modules() if m is not base and type(getattr(m, "config", None)) is type(nested))
    return None if nested is None else next(found, None)


def part_names(base: nn.Module) -> list[str]:
    """What `part` can be: stacks with a nested config, and submodules."""
    nested = [part for part in NESTED_PARTS if nested_part(base, part) is not None]
    return list(dict.fromkeys([*nested, *(str(name) for name, _ in base.named_children())]))


def default_part(module: Any, preprocessor: object) -> str | None:
    """The part that is read unless one is chosen: of a model with encoder and decoder the encoder, if it takes these
    inputs. That of a speech model takes no texts."""
    if not getattr(getattr(module, "config", None), "is_encoder_decoder", False):
        return None
    encoder = getattr(backbone(module, None), "encoder", None)
    reads_texts = isinstance(encoder, nn.Module) and "input_ids" in signature(encoder.forward).parameters
    return "encoder" if is_audio(preprocessor) or (reads_texts and is_tokenizer(preprocessor)) else None


def part_class(config: Any, part: str | None, *, trust_remote_code: bool = False) -> tuple[type | None, Any]:
    """The class of the part and its config, from the config alone; no class for one that comes with the model."""
    from transformers import MODEL_MAPPING, AutoModel

    if part is None:
        found: Any = MODEL_MAPPING[type(config)] if type(config) in MODEL_MAPPING else None
        return (found[0] if isinstance(found, tuple) else found), config  # one config may have several classes
    build: Any = AutoModel.from_config
    with torch.device("meta"):
        module = backbone(build(config, trust_remote_code=trust_remote_code), part)
    return type(module), getattr(module, "config", config)


def input_kind(model_class: Any, name: str) -> InputKind:
    """What a class of models takes; raises if that is neither texts nor audio nor images."""
    takes = signature(model_class.forward).parameters
    main = getattr(model_class, "main_input_name", "input_ids")
    if "input_ids" in takes or (main == "input_ids" and any(p.kind is p.VAR_KEYWORD for p in takes.values())):
        return "text"
    if main in AUDIO_INPUTS and main in takes:
        return "audio"
    if main == IMAGE_INPUT and main in takes:
        return "image"
    if main not in INPUT_KINDS:
        first = next((parameter for parameter in takes if parameter != "self"), "nothing")
        raise ModelError(f"{name!r} takes {first}, not token ids: pass a text model, or a pair (module, processor)")
    text = " Its text stack can be read: add --part text." if "text" in modalities_of(model_class) else ""
    raise ModelError(
        f"{name!r} is {INPUT_KINDS[main]} model ({model_class.__name__}); layerwise loads text, audio and image "
        f"models.{text} For other inputs pass a pair, in Python: layerwise.scan((module, processor), source); see "
        "docs/architecture.md"
    )


def require_text_class(model_class: Any, name: str) -> None:
    """Raises for a class of models whose forward pass takes no token ids, such as an audio model, or no mask."""
    if (kind := input_kind(model_class, name)) != "text":
        decoder = " Its decoder reads texts: add --part decoder." if "text" in modalities_of(model_class) else ""
        front_end = "feature extractor" if kind == "audio" else "image processor"
        raise ModelError(
            f"{name!r} is an {kind} model ({model_class.__name__}), and takes no texts.{decoder} Pass its folder or "
            f"hub id, or a pair of the module and its {front_end}"
        )
    takes = signature(model_class.forward).parameters
    if "attention_mask" not in takes and not any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        raise ModelError(
            f"{model_class.__name__}.forward takes no attention_mask, so it would read the padding of short texts as "
            "tokens; layerwise cannot read such a model in batches"
        )


def require_readable(module: Any) -> None:
    """Raises for an object that is no torch module, and for one without the config of a transformers model."""
    if not isinstance(module, nn.Module):
        raise InputError(
            f"a pair is (module, tokenizer or processor), and a {type(module).__name__} is no torch module"
        )
    if not hasattr(getattr(backbone(module, None), "config", None), "to_dict"):
        raise InputError(
            f"{type(module).__name__} has no config that says how many blocks it has. A module of your own needs a "
            "field config = transformers.PretrainedConfig(num_hidden_layers=..., hidden_size=...), its blocks in one "
            "torch.nn.ModuleList of that length, and a forward(input_ids, attention_mask)"
        )

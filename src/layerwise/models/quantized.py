"""Weights that are stored quantised: how, which package reads them, and what needs the original instead."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from layerwise.core.errors import MissingExtra, ModelError
from layerwise.models.families.family import text_config

# The package that transformers needs for a method; it reads methods that are not listed without one.
PACKAGES = {
    "aqlm": "aqlm",
    "auto-round": "auto_round",
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "bitsandbytes_4bit": "bitsandbytes",
    "bitsandbytes_8bit": "bitsandbytes",
    "compressed-tensors": "compressed_tensors",
    "eetq": "eetq",
    "gptq": "gptqmodel",
    "hqq": "hqq",
    "quanto": "optimum",
    "torchao": "torchao",
    "vptq": "vptq",
}


def quantization_of(config: Any) -> str:
    """The method and its kind, such as `torchao Int8WeightOnlyConfig`; empty for ordinary weights."""
    given = getattr(config, "quantization_config", None) or getattr(text_config(config), "quantization_config", None)
    if not given:
        return ""
    record = given if isinstance(given, Mapping) else given.to_dict()
    kind = record.get("quant_type") or record.get("bits") or record.get("format") or ""
    if isinstance(kind, Mapping):  # of torchao
        default = kind.get("default", kind)
        kind = default.get("_type", "") if isinstance(default, Mapping) else default
    elif isinstance(kind, int):
        kind = f"{kind} bits"
    method = record.get("quant_method", "unknown")
    return f"{getattr(method, 'value', method)} {kind}".strip()


def require_package(config: Any, name: str) -> None:
    """Raises if the package that reads the weights of a model is not installed."""
    package = PACKAGES.get(quantization_of(config).partition(" ")[0])
    if package is not None and find_spec(package) is None:
        wheel = package.replace("_", "-")
        raise MissingExtra(f"the weights of {name!r} are quantised ({quantization_of(config)}): pip install {wheel}")


def require_ordinary_weights(config: Any, name: str, what: str) -> None:
    """Raises if the weights of a model are quantised; `what` cannot be done with these."""
    if kind := quantization_of(config):
        raise ModelError(f"the weights of {name!r} are quantised ({kind}): {what} needs the original model")

"""The fingerprint of a model: a hash of everything that affects its numbers.

A model loaded from files is identified by the hashes of those files, which are cached (core/hashes.py), so that a
hundred workers need not read 140 GB each. A model object is identified by the bytes of its weights
in memory. Both include config, tokenizer and shipped modules.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from layerwise.core.hashes import KnownHashes, file_hash, file_identity
from layerwise.core.preprocessors import is_tokenizer
from layerwise.models.adapters import ADAPTER_WEIGHTS as ADAPTER_WEIGHTS
from layerwise.models.shipped import SUPPORTED_MODULES, Shipped, find_file, read_object

# Config fields that do not affect hidden states: origin, requested outputs, heads.
IGNORED_CONFIG_FIELDS = (
    "_name_or_path", "_commit_hash", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache",
    "output_hidden_states", "output_attentions", "return_dict", "id2label", "label2id", "problem_type", "auto_map",
)  # fmt: skip
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER_CONFIG = "adapter_config.json"
MODULE_FILES = ("config.json", WEIGHTS, "pytorch_model.bin")  # of a module after the transformer
# Weights are hashed from local files; hashing downloads nothing.
local_file = partial(find_file, download=False)


class Preprocessor(Protocol):
    """The interface of a preprocessor that is not a tokenizer."""

    def identity(self) -> str:
        """A string that changes whenever the inputs would change."""


def weight_files_hash(
    name: str,
    revision: str | None,
    shipped: Shipped | None,
    adapter: str | None,
    known_hashes: KnownHashes | None = None,
) -> str | None:
    """A hash of all weight files of a folder or hub id; None if they are not in the usual places."""
    files = [*weight_files(name, revision, shipped)]
    if adapter:  # the adapter's config scales its weights
        files += [(f"adapter {file}", local_file(adapter, None, file)) for file in (ADAPTER_WEIGHTS, ADAPTER_CONFIG)]
    if not files or any(path is None for _, path in files):
        return None
    return hash_lines([f"{label} {file_hash(path, known_hashes)}" for label, path in files if path is not None])


def weight_files(name: str, revision: str | None, shipped: Shipped | None) -> Iterator[tuple[str, Path | None]]:
    """All weight files: of the transformer (single or sharded), and of the modules after it."""
    folder = shipped.transformer if shipped else ""
    if local_file(name, revision, ADAPTER_CONFIG, folder) is not None:  # transformers loads the adapter as well
        yield ADAPTER_CONFIG, None
    if (single_file := local_file(name, revision, WEIGHTS, folder)) is not None:  # transformers prefers it over shards
        yield WEIGHTS, single_file
    else:
        yield from sharded_weight_files(name, revision, folder)
    for module in shipped.modules if shipped else ():
        if module.kind not in SUPPORTED_MODULES:  # it may have other files
            yield module.path, None
        for file in MODULE_FILES:
            if (path := local_file(name, revision, file, module.path)) is not None:
                yield f"{module.path}/{file}", path


def sharded_weight_files(name: str, revision: str | None, folder: str) -> Iterator[tuple[str, Path | None]]:
    """The files listed in the index; without an index, the default name (which does not exist)."""
    index = read_object(name, revision, WEIGHTS_INDEX, folder) or {}
    weight_map = index.get("weight_map", {})
    names = sorted(set(weight_map.values())) or [WEIGHTS]
    yield from ((file, local_file(name, revision, file, folder)) for file in names)


def parameters_in(paths: Iterable[Path]) -> int:
    """How many numbers these files hold, from their headers alone; 0 where one of them cannot be read."""
    try:
        return sum(numbers_in(path) for path in paths if path.suffix == ".safetensors")
    except (OSError, SafetensorError):
        return 0


def numbers_in(path: Path) -> int:
    with safe_open(path, "pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())


def file_hashes(name: str, revision: str | None, shipped: Shipped | None) -> dict[str, str]:
    """The hashes of a model's files by path, size and time, for other processes with access to the same files."""
    paths = [path.resolve() for _, path in weight_files(name, revision, shipped) if path is not None]
    return {file_identity(path): file_hash(path) for path in paths}


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """A hash of every byte of these weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype} ".encode())
        for part in stored_parts(weight):
            digest.update(tensor_bytes(part))
    return digest.hexdigest()


def stored_parts(weight: Tensor) -> list[Tensor]:
    """The plain tensors that a weight consists of: quantised ones keep numbers and scales."""
    if not hasattr(weight, "__tensor_flatten__"):
        return [weight]
    names, _ = weight.__tensor_flatten__()
    return [part for name in names for part in stored_parts(getattr(weight, name))]


def tensor_bytes(weight: Tensor) -> Any:
    """The bytes of a weight, for any dtype, without a copy."""
    return weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def config_text(config: Any) -> str:
    """Everything in a config that can change hidden states, such as rope_theta or a norm's epsilon."""
    fields = {name: value for name, value in config.to_dict().items() if name not in IGNORED_CONFIG_FIELDS}
    return json.dumps(fields, sort_keys=True, default=str)


def preprocessor_text(preprocessor: Any) -> str:
    """Everything that affects how an example becomes model inputs."""
    if is_tokenizer(preprocessor):
        return tokenizer_text(preprocessor)
    custom: Preprocessor = preprocessor
    return custom.identity()


def tokenizer_text(tokenizer: Any) -> str:
    """Everything that affects how a tokenizer splits a text."""
    if (
        backend := getattr(tokenizer, "backend_tokenizer", None)
    ) is None:  # a Python tokenizer: class, vocabulary, settings
        init_arguments = {name: str(value) for name, value in getattr(tokenizer, "init_kwargs", {}).items()}
        merges = str(getattr(tokenizer, "bpe_ranks", ""))
        content: Any = [type(tokenizer).__qualname__, sorted(tokenizer.get_vocab().items()), init_arguments, merges]
    else:
        content = json.loads(backend.to_str())
        for setting in ("truncation", "padding"):
            content.pop(setting, None)
    side = getattr(tokenizer, "truncation_side", "right")  # which end of a long text is truncated
    split = " split" if getattr(tokenizer, "split_special_tokens", False) else ""  # special tokens as plain text
    return f"{json.dumps(content, sort_keys=True, default=str)} {tokenizer.special_tokens_map} {side}{split}"


def code_text(module: nn.Module) -> str:
    """The class of a model, its remote code if any, and user hooks on its submodules."""
    lines = [f"{type(module).__module__}.{type(module).__qualname__}"]
    if lines[0].startswith("transformers_modules"):
        lines.append(Path(inspect.getfile(type(module))).read_text(encoding="utf-8", errors="replace"))
    for name, part in module.named_modules():
        hooks = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
        user_hooks = [hook for hook in hooks if not str(getattr(hook, "__module__", "")).startswith("accelerate")]
        lines += [f"{name}: {getattr(hook, '__qualname__', type(hook).__qualname__)}" for hook in user_hooks]
        for setting in ("active_adapters", "merged_adapters", "disable_adapters", "scaling"):  # in PEFT layers
            if hasattr(part, setting) and hasattr(part, "base_layer"):
                lines.append(f"{name}.{setting}: {getattr(part, setting)}")
    return "\n".join(lines)


def hash_lines(lines: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

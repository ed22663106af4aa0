"""Tensors and words in one safetensors file that carries a checksum of everything in it; no pickle."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # core can be imported without torch
    from torch import Tensor


def dump_tensors(key: str, words: str, tensors: "Mapping[str, Tensor]") -> bytes:
    """A safetensors file of CPU tensors whose header holds the words, and a checksum, under that key."""
    from safetensors.torch import save

    return save(dict(tensors), metadata={key: f"{checksum(tensors, words)} {words}"})


def parse_tensors(key: str, data: bytes) -> "tuple[str, dict[str, Tensor]]":
    """The inverse of dump_tensors; raises ValueError with the reason where the bytes are not what was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        expected, _, metadata = json.loads(data[8 : 8 + length])["__metadata__"][key].partition(" ")
    except (SafetensorError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if checksum(tensors, metadata) != expected:
        raise ValueError("its checksum differs, or it is of an earlier layerwise")
    return metadata, tensors


def has_key(key: str, data: bytes) -> bool:
    """True if these bytes begin as a file that dump_tensors wrote under that key, damaged or not."""
    return f'"{key}"'.encode() in data[8 : 8 + int.from_bytes(data[:8], "little")]


def checksum(tensors: "Mapping[str, Tensor]", words: str) -> str:
    """A hash of everything that such a file says: the words, and name, type, shape and numbers of each tensor."""
    import torch

    digest = hashlib.blake2b(words.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

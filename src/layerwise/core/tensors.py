"""Tensors and metadata in one safetensors file with a checksum; no pickle."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # core can be imported without torch
    from torch import Tensor


def dump_tensors(key: str, metadata: str, tensors: "Mapping[str, Tensor]") -> bytes:
    """A safetensors file of CPU tensors; its header stores the metadata and a checksum under `key`."""
    from safetensors.torch import save

    return save(dict(tensors), metadata={key: f"{checksum(tensors, metadata)} {metadata}"})


def parse_tensors(key: str, data: bytes) -> "tuple[str, dict[str, Tensor]]":
    """The inverse of dump_tensors; raises ValueError with the reason if the bytes are damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        expected, _, metadata = json.loads(data[8 : 8 + length])["__metadata__"][key].partition(" ")
    except (SafetensorError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if checksum(tensors, metadata) != expected:
        raise ValueError("checksum mismatch")
    return metadata, tensors


def has_key(key: str, data: bytes) -> bool:
    """True if the bytes start like a file that dump_tensors wrote with that key, damaged or not."""
    return f'"{key}"'.encode() in data[8 : 8 + int.from_bytes(data[:8], "little")]


def checksum(tensors: "Mapping[str, Tensor]", metadata: str) -> str:
    """A hash of the file's contents: the metadata, and the name, type, shape and values of each tensor."""
    import torch

    digest = hashlib.blake2b(metadata.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

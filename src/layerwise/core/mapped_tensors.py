"""Where the tensors of a safetensors file lie: single ones are mapped into memory, without reading the others."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# numpy has no bfloat16: it is given as whole numbers of its size.
NUMPY_TYPES: dict[str, Any] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
    "BF16": np.uint16, "F16": np.float16, "F32": np.float32, "F64": np.float64,
}  # fmt: skip
LONGEST_HEADER = 100 * 2**20  # bytes; the format allows no longer one


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in its file, and the format's name of its type."""

    path: Path
    offset: int
    type_name: str
    shape: tuple[int, ...]

    def array(self) -> NDArray[Any]:
        """The tensor, mapped for reading: its memory belongs to the file, and the system may take it back."""
        dtype = np.dtype(NUMPY_TYPES[self.type_name])
        if 0 in self.shape:
            return np.zeros(self.shape, dtype)
        mapped = np.memmap(self.path, dtype, "r", self.offset, self.shape)
        return mapped if self.offset % dtype.itemsize == 0 else np.array(mapped)


def places_in(path: Path) -> dict[str, Place]:
    """Where each tensor lies in a safetensors file; raises ValueError where the header cannot be that of this file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        if not 8 < start <= min(size, LONGEST_HEADER):
            raise ValueError(f"{path} is not a whole safetensors file")
        try:
            header = json.loads(file.read(start - 8))
            header.pop("__metadata__", None)
            return {name: checked_place(path, start, size, entry) for name, entry in header.items()}
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"{path} is not a whole safetensors file: {error!r}") from error


def checked_place(path: Path, start: int, size: int, entry: dict[str, Any]) -> Place:
    """The place of a tensor from its line of the header; its bytes must be in the file and fit its shape."""
    begin, end = entry["data_offsets"]
    shape, type_name = tuple(entry["shape"]), entry["dtype"]
    if type_name not in NUMPY_TYPES:
        raise ValueError(f"{path} holds tensors of type {type_name}, which cannot be read one by one")
    needed = math.prod(shape) * np.dtype(NUMPY_TYPES[type_name]).itemsize
    if any(number < 0 for number in (*shape, begin)) or end - begin != needed or start + end > size:
        raise ValueError(f"{path} is not a whole safetensors file: a tensor lies outside it")
    return Place(path, start + begin, type_name, shape)

"""The vector store: pooled vectors of all readouts of every text, written once, read by any process.

A folder holds the vectors of one kind: one model, dtype, length and template. Each segment is a file, written
atomically, whose name contains a hash of its bytes; a segment that does not match is deleted and recomputed.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from layerwise.core.checks import PRECISIONS, require_choice
from layerwise.core.errors import LayerwiseError, RunError
from layerwise.core.files import DiskFolder, write_checked_json
from layerwise.core.formats import parse_record, require_shape
from layerwise.core.recipe import RECIPE_SHAPE, Readout

SEGMENT_TEXTS = 512  # also the shard size of workers, so that a small task keeps several busy
SEGMENT = re.compile(r"segment-[0-9a-f]{24}\.safetensors")


class VectorsMissingError(LayerwiseError):
    """A text has no vectors in the store, and this process cannot compute them."""


@dataclass(frozen=True)
class VectorKind:
    """Everything that affects a text's vectors except the text itself; kinds are never mixed."""

    model: str  # fingerprint of weights and tokenizer
    dtype: str
    max_length: int
    readouts: tuple[Readout, ...]
    template: str = ""  # text before and after each text
    role: str = ""  # query, document, or neither

    def to_record(self) -> dict[str, Any]:
        """The kind as a JSON object."""
        return asdict(self)

    def name(self, **other: str) -> str:
        """A hash of the record; `other` replaces some of its fields."""
        text = json.dumps(self.to_record() | other, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def includes(self, other: Self) -> bool:
        """True if a store of this kind contains everything that one of the other kind would."""
        return replace(self, readouts=other.readouts) == other and set(self.readouts) >= set(other.readouts)


def find_kinds(out: Path, pattern: str = "*/vectors/*/kind.json") -> list[VectorKind]:
    """The kinds of all stores in a folder, or those in other files."""
    kinds = []
    for path in sorted(out.glob(pattern)):
        record = parse_record(DiskFolder(path.parent).read(path.name) or b"", str(path))
        shape = {
            "model": str, "dtype": str, "max_length": int, "readouts": [RECIPE_SHAPE], "template": str, "role": str,
        }  # fmt: skip
        require_shape(record, shape, str(path))
        try:
            readouts = tuple(Readout(**r) for r in record["readouts"])
            kinds.append(VectorKind(**record | {"readouts": readouts}))
        except (KeyError, TypeError) as error:
            raise RunError(f"{path} is damaged ({error}); delete its folder, or use another one") from None
    return list(dict.fromkeys(kinds))


FillStore = Callable[[Sequence[Sequence[str]]], None]  # adds one segment per part to the store's folder


@dataclass
class VectorStore:
    """Vectors of one kind. `encode_missing` computes what is missing; without it, VectorsMissing is raised."""

    root: Path
    kind: VectorKind
    encode_missing: FillStore | None = None
    precision: str = "float32"
    verify: bool = True
    encoded_count: int = 0  # number of texts that went through the model
    index: dict[bytes, tuple[Path, int]] = field(init=False, default_factory=dict)
    indexed: set[Path] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        require_choice("precision", self.precision, PRECISIONS)
        for path in self.segments():
            if not self.verify or is_complete(path):
                self._index_segment(path)
            else:
                path.unlink()

    @property
    def folder(self) -> Path:
        return self.root / f"{self.kind.name()}-{self.precision}"

    def segments(self) -> list[Path]:
        paths = self.folder.glob("segment-*.safetensors")
        # files with other names belong to the user
        return sorted(path for path in paths if SEGMENT.fullmatch(path.name))

    def vectors(self, texts: Sequence[str], readout: Readout) -> NDArray[np.float32]:
        """The vectors of these texts, in order, (N, D); missing ones are computed first, for all readouts."""
        keys = [text_key(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.index}
        if missing:
            self._add(list(missing.values()))
        by_segment: dict[Path, list[int]] = {}
        for position, key in enumerate(keys):
            by_segment.setdefault(self.index[key][0], []).append(position)
        parts: list[tuple[list[int], NDArray[np.float32]]] = []
        for path, positions in by_segment.items():
            with safe_open(path, framework="np") as segment:
                rows = segment.get_tensor(tensor_name(readout))
            parts.append((positions, rows[[self.index[keys[i]][1] for i in positions]].astype(np.float32)))
        result = np.empty((len(texts), parts[0][1].shape[1] if parts else 0), dtype=np.float32)
        for positions, rows in parts:
            result[positions] = rows
        return result

    def evict(self, keep: Iterable[Path] = ()) -> None:
        """Deletes all segments except those to keep."""
        keep_set = set(keep)
        for path in self.segments():
            if path not in keep_set:
                path.unlink()
        self.index = {key: location for key, location in self.index.items() if location[0] in keep_set}
        self.indexed &= keep_set

    def _add(self, texts: Sequence[str]) -> None:
        if self.encode_missing is None:
            raise VectorsMissingError(f"{len(texts)} texts have no vectors in {self.folder}")
        if not (self.folder / "kind.json").exists():
            write_checked_json(self.folder / "kind.json", self.kind.to_record())
        self.encode_missing([texts[start : start + SEGMENT_TEXTS] for start in range(0, len(texts), SEGMENT_TEXTS)])
        self.encoded_count += len(texts)
        for path in self.segments():
            if path not in self.indexed:
                self._index_segment(path)

    def _index_segment(self, path: Path) -> None:
        """Adds a segment to the index."""
        self.indexed.add(path)
        with safe_open(path, framework="np") as segment:
            keys = segment.get_tensor("keys")
        self.index.update({keys[i].tobytes(): (path, i) for i in range(len(keys))})


def segment_file(texts: Sequence[str], vectors: Mapping[Readout, Tensor], precision: str) -> tuple[str, bytes]:
    """The name and the bytes of a segment: the vectors of these texts, (N, D) for each readout."""
    keys = torch.frombuffer(bytearray(b"".join(map(text_key, texts))), dtype=torch.uint8).view(len(texts), -1)
    tensors = {tensor_name(r): rows.to(getattr(torch, precision)).contiguous() for r, rows in vectors.items()}
    data = save({"keys": keys, **tensors})
    return f"segment-{digest(data)}.safetensors", data


def is_complete(segment: Path) -> bool:
    """True if its bytes match the hash in its name."""
    return segment.stem == f"segment-{digest(segment.read_bytes())}"


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def tensor_name(readout: Readout) -> str:
    return f"{readout.layer:03d}-{readout.norm}-{readout.tokens}-{readout.pooling}"

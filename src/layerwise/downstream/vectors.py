"""The vector store: pooled vectors of all readouts of every text, written once, read by any process.

A folder holds the vectors of one kind: one model, type, length and prompt. Inside, each segment is a file that is
whole or absent and whose name carries a hash of its bytes; one that does not match is deleted and computed again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from layerwise.errors import InputError, LayerwiseError
from layerwise.files import write_atomically, write_json
from layerwise.recipe import Readout

SEGMENT_TEXTS = 2048
PRECISIONS = {"float32": torch.float32, "float16": torch.float16}


class VectorsMissing(LayerwiseError):
    """A text has no vectors in the store, and nobody here can compute them."""


@dataclass(frozen=True)
class VectorKind:
    """Everything that decides a text's vectors but the text: no vector of one kind is ever served for another."""

    model: str  # fingerprint of weights and tokenizer
    dtype: str
    max_length: int
    readouts: tuple[Readout, ...]
    prompt: str = ""  # put before each text
    role: str = ""  # query, document, or neither

    def name(self) -> str:
        told = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=12).hexdigest()

    def serves(self, other: Self) -> bool:
        """True if a store of this kind holds all that one of the other would."""
        return replace(self, readouts=other.readouts) == other and set(self.readouts) >= set(other.readouts)


def kinds_in(out: Path) -> list[VectorKind]:
    """The kinds of all stores below a folder, as they are without prompt and role."""
    found = []
    for path in sorted(out.glob("*/vectors/*/kind.json")):
        told = json.loads(path.read_text(encoding="utf-8")) | {"prompt": "", "role": ""}
        found.append(VectorKind(**told | {"readouts": tuple(Readout(**r) for r in told["readouts"])}))
    return list(dict.fromkeys(found))


Compute = Callable[[Sequence[str]], Mapping[Readout, Tensor]]


@dataclass
class VectorStore:
    """Vectors of one kind. `compute` makes those of texts that are missing; without it, missing texts are an error."""

    root: Path
    kind: VectorKind
    compute: Compute | None = None
    precision: str = "float32"
    verify: bool = True
    forwarded: int = 0  # texts that went through the model
    places: dict[bytes, tuple[Path, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        if not (self.folder / "kind.json").exists() and self.compute is not None:
            write_json(self.folder / "kind.json", asdict(self.kind))
        for path in self.segments():
            self._admit(path)

    @property
    def folder(self) -> Path:
        return self.root / f"{self.kind.name()}-{self.precision}"

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("segment-*.safetensors"))

    def vectors(self, texts: Sequence[str], readout: Readout) -> NDArray[np.float32]:
        """The vectors of these texts, in their order, (N, D); missing ones are computed first, for all readouts."""
        keys = [text_key(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.places}
        if missing:
            self._add(list(missing.values()))
        by_segment: dict[Path, list[int]] = {}
        for place, key in enumerate(keys):
            by_segment.setdefault(self.places[key][0], []).append(place)
        parts: list[tuple[list[int], NDArray[np.float32]]] = []
        for path, at in by_segment.items():
            with safe_open(path, framework="np") as segment:
                rows = segment.get_tensor(tensor_name(readout))
            parts.append((at, rows[[self.places[keys[i]][1] for i in at]].astype(np.float32)))
        found = np.empty((len(texts), parts[0][1].shape[1] if parts else 0), dtype=np.float32)
        for at, rows in parts:
            found[at] = rows
        return found

    def evict(self, keep: Iterable[Path] = ()) -> None:
        """Deletes all segments but those to keep."""
        kept = set(keep)
        for path in self.segments():
            if path not in kept:
                path.unlink()
        self.places = {key: place for key, place in self.places.items() if place[0] in kept}

    def _add(self, texts: Sequence[str]) -> None:
        if self.compute is None:
            raise VectorsMissing(f"{len(texts)} texts have no vectors in {self.folder}")
        for start in range(0, len(texts), SEGMENT_TEXTS):
            part = texts[start : start + SEGMENT_TEXTS]
            found = self.compute(part)
            self.forwarded += len(part)
            keys = torch.frombuffer(bytearray(b"".join(map(text_key, part))), dtype=torch.uint8).view(len(part), -1)
            tensors = {tensor_name(r): rows.to(PRECISIONS[self.precision]).contiguous() for r, rows in found.items()}
            data = save({"keys": keys, **tensors})
            path = self.folder / f"segment-{hashlib.blake2b(data, digest_size=12).hexdigest()}.safetensors"
            write_atomically(path, data)
            self.places.update({text_key(text): (path, i) for i, text in enumerate(part)})

    def _admit(self, path: Path) -> None:
        """Takes a segment into the index; deletes it where its bytes are not those it was written with."""
        if self.verify:
            digest = hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
            if path.stem != f"segment-{digest}":
                path.unlink()
                return
        with safe_open(path, framework="np") as segment:
            keys = segment.get_tensor("keys")
        self.places.update({keys[i].tobytes(): (path, i) for i in range(len(keys))})


def text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def tensor_name(readout: Readout) -> str:
    return f"{readout.layer:03d}-{readout.readout}-{readout.tokens}-{readout.pooling}"

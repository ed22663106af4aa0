"""Features of every layer for probes: computed once per example, stored on disk in shards, read many times.

A shard is one safetensors file. Its name is a hash of everything that its values depend on (model, settings, the
examples in it), so that a file with the right name and an intact checksum is never computed again.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.core.errors import InputError, NotFiniteError
from layerwise.core.files import write_atomically
from layerwise.core.mapped_tensors import Place, places_in
from layerwise.core.progress import OnBatch
from layerwise.core.recipe import Readout
from layerwise.core.tensors import dump_tensors, parse_tensors
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.passes.batches import network_processor
from layerwise.passes.positions import Features, PositionsConsumer
from layerwise.passes.tapped_pass import run_pass
from layerwise.passes.vectors import not_finite, not_finite_rows
from layerwise.verbs.probe.words import places_to_keep

SHARD = re.compile(r"features-[0-9a-f]{24}\.safetensors")
KEY = "layerwise_features"
SHARD_BYTES = 64 * 2**20  # of stored positions; a shard is held in memory while it is written
MAX_SHARD = 1024  # examples
TRIED_EXAMPLES = 8  # that are run to predict the size of the rest
DISK_SHARE = 0.9  # of the free space may be used
PARTS = ("pooled", "normalised_mean", "positions", "lengths")


@dataclass(frozen=True)
class FeatureKind:
    """Everything that the features of an example depend on, except the example."""

    model: str  # fingerprint
    max_length: int
    readouts: tuple[Readout, ...]
    positions: bool  # whether single positions are stored, for the attention probe
    precision: str  # dtype of stored positions
    words: bool = False  # whether these are only the first tokens of words

    def shard_name(self, examples: Sequence[Example]) -> str:
        content = json.dumps(asdict(self), sort_keys=True) + " ".join(str(example.digest) for example in examples)
        return f"features-{hashlib.blake2b(content.encode(), digest_size=12).hexdigest()}.safetensors"


@dataclass
class FeatureStore:
    """The features of all examples, in the order in which they were added."""

    folder: Path
    kind: FeatureKind
    shards: list[Mapping[str, Place]] = field(default_factory=list)
    forwarded: int = 0  # examples that went through the model

    def add(self, network: Network, examples: Sequence[Example], batch_tokens: int, on_batch: OnBatch) -> None:
        """Adds the features of these examples, from their file if it is there and intact."""
        path = self.folder / self.kind.shard_name(examples)
        if not is_intact(path):
            features = read_layers(network, self.kind, examples, batch_tokens, on_batch)
            write_atomically(path, dump_tensors(KEY, "", shard_tensors(self.kind, examples, features)))
            self.forwarded += len(examples)
        else:
            on_batch(len(examples), 0)
        self.shards.append(places_in(path))

    def rows(self, readout: Readout, part: str) -> NDArray[np.float32]:
        """The vectors of all examples, (N, D): `pooled` or `normalised_mean`."""
        return np.concatenate([shard[tensor_name(readout, part)].array() for shard in self.shards]).astype(np.float32)

    def positions(self, readout: Readout) -> "Positions":
        """The positions of all examples."""
        shards = [shard[tensor_name(readout, "positions")].array() for shard in self.shards]
        lengths = [shard[tensor_name(readout, "lengths")].array() for shard in self.shards]
        starts = [(number, end - length, end) for number, one in enumerate(lengths)
                  for length, end in zip(one.tolist(), np.cumsum(one).tolist(), strict=True)]  # fmt: skip
        return Positions(shards, starts)

    def delete(self) -> None:
        """Deletes all shards in the folder, and the folder if nothing else is in it."""
        for path in [*self.folder.iterdir()] if self.folder.is_dir() else []:
            if SHARD.fullmatch(path.name):
                path.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


@dataclass(frozen=True)
class Positions:
    """The positions of all examples at one readout, on disk."""

    shards: Sequence[NDArray[Any]]
    places: Sequence[tuple[int, int, int]]  # of each example: its shard, and the first and last row in it

    @property
    def width(self) -> int:
        return int(self.shards[0].shape[1])

    def batch(self, examples: Iterable[int]) -> tuple[Tensor, Tensor]:
        """The positions of these examples one after another, (P, D) in float32, and how many each has, (B,)."""
        places = [self.places[i] for i in examples]
        rows = np.concatenate([self.shards[shard][first:last] for shard, first, last in places])
        return torch.from_numpy(rows).float(), torch.tensor([last - first for _, first, last in places])


def read_layers(
    network: Network, kind: FeatureKind, examples: Sequence[Example], batch_tokens: int, on_batch: OnBatch
) -> dict[Readout, Features]:
    """One forward pass per example, and what is read of it at each readout, in the order of the examples."""
    places = places_to_keep(network.preprocessor, examples, kind.max_length) if kind.words else None
    consumer = PositionsConsumer(network, kind.readouts, kind.positions, getattr(torch, kind.precision), places)
    prepared = network_processor(network).prepare(examples, kind.max_length)
    run_pass(network, prepared, {readout.layer for readout in kind.readouts}, batch_tokens, consumer)
    on_batch(len(examples), sum(one.max_size for one in prepared))
    features = {r: consumer.features[r].of([example.digest for example in examples]) for r in kind.readouts}
    require_finite(features, examples, network.dtype, kind.precision)
    return features


def require_finite(
    features: Mapping[Readout, Features], examples: Sequence[Example], dtype: torch.dtype, precision: str
) -> None:
    """Raises if a layer overflowed, in the model or where its positions are stored in half precision."""
    for readout, found in features.items():
        if len(bad := not_finite_rows(found.pooled)):
            raise not_finite(readout.layer, dtype, examples[int(bad[0])].id)
        if len(bad := not_finite_rows(found.positions)):
            place = int(torch.searchsorted(found.lengths.cumsum(0), bad[0], right=True))
            raise NotFiniteError(
                f"layer {readout.layer} has values too large for {precision} (example {examples[place].id}); run again "
                "with --precision float32"
            )


def shard_tensors(
    kind: FeatureKind, examples: Sequence[Example], features: Mapping[Readout, Features]
) -> dict[str, Tensor]:
    """The tensors of a shard, by name."""
    tensors = {"digests": torch.tensor([example.digest for example in examples])}
    for readout, found in features.items():
        parts = (found.pooled.float(), found.normalised_mean.float(), found.positions, found.lengths)
        tensors |= {tensor_name(readout, name): part for name, part in zip(PARTS, parts, strict=True)}
    return tensors


def tensor_name(readout: Readout, part: str) -> str:
    return f"{readout.layer:03d}-{readout.norm}-{part}"


def is_intact(path: Path) -> bool:
    """True if the file is there and its checksum is right."""
    try:
        parse_tensors(KEY, path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def bytes_per_size(network: Network, kind: FeatureKind, examples: Sequence[Example], batch_tokens: int) -> float:
    """Bytes that are stored per unit of an example's size, from running a few examples.

    The positions that count may be far fewer than those of the input: a speech model always takes 30 seconds.
    """
    features = read_layers(network, kind, examples, batch_tokens, lambda items, tokens=0: None)
    tensors = shard_tensors(kind, examples, features)
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    return stored / sum(one.max_size for one in network_processor(network).prepare(examples, kind.max_length))


def require_disk(folder: Path, needed: float) -> None:
    """Raises if the features will not fit on the disk of a folder."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed > DISK_SHARE * free:
        raise InputError(
            f"storing positions needs about {in_gigabytes(needed)} in {existing}, but {in_gigabytes(free)} are free; "
            "use fewer --layers, a smaller --max-length, --out on another disk, or for labels of texts --probes "
            "linear,knn,weighted_sum"
        )


def in_gigabytes(number: float) -> str:
    return f"{number / 1e9:.2g} GB" if number >= 1e8 else f"{number / 1e6:.2g} MB"

"""Encodes texts that have no vectors yet, shard by shard with any engine, into the store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from layerwise.core.errors import InputError
from layerwise.core.files import DiskFolder
from layerwise.core.progress import progress_bar
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.engine import Engine
from layerwise.engines.shards import Item, ProgressCallback, ShardResult, torch_threads
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.passes.vectors import pooled_vectors
from layerwise.verbs.eval.vectors import VectorKind, VectorStore, segment_file


@dataclass
class Tally:
    """The state of a shard whose vectors are in a separate file: how many texts, and which."""

    count: int = 0
    keys: int = 0

    @property
    def missing(self) -> list[str]:
        return []  # every text needs a vector

    @property
    def size(self) -> int:
        return 0

    def merge(self, other: Self) -> None:
        self.count, self.keys = self.count + other.count, self.keys + other.keys

    def dump(self) -> bytes:
        return json.dumps(vars(self)).encode()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            raise InputError("not a shard tally") from None

    def was_made_from(self, count: int, keys: int) -> bool:
        return (self.count, self.keys) == (count, keys)

    def record_missing(self, items: Sequence[Item]) -> None:
        assert not items, "leaving out texts is not allowed here"


@dataclass(frozen=True)
class Encoding:
    """Everything that affects a segment besides its texts; plain data that can be sent to workers."""

    kind: VectorKind
    precision: str
    batch_tokens: int
    threads: int

    def encode_shard(
        self, network: Network, number: int, items: Sequence[Example], report: ProgressCallback
    ) -> ShardResult[Tally]:
        """The shard function: vectors of these texts for all readouts, as a segment of the store."""
        with torch_threads(self.threads):
            vectors = pooled_vectors(
                network,
                items,
                self.kind.readouts,
                max_length=self.kind.max_length,
                template=self.kind.template,
                batch_tokens=self.batch_tokens,
                on_batch=lambda done: report(done, 0),
            )
        name, data = segment_file([item.text for item in items], vectors, self.precision)
        return Tally(len(items), sum(item.digest for item in items)), {name: data}


def encode_into_store(
    engine: Engine, encoding: Encoding, store: VectorStore, progress: bool, parts: Sequence[Sequence[str]]
) -> None:
    """Adds one segment per part to the store.

    Checkpoints of the engine, including those of a killed run, are not needed afterwards: the existing segments show
    which texts are done.
    """
    checkpoint = Checkpoint(DiskFolder(store.folder), Tally.parse, interval=float("inf"))
    checkpoint.delete()
    starts = [sum(map(len, parts[:i])) for i in range(len(parts))]
    shards = [
        [Example(str(start + i), text) for i, text in enumerate(part)]
        for start, part in zip(starts, parts, strict=True)
    ]
    with progress_bar(progress, total=sum(map(len, parts)), unit="texts") as on_batch:
        engine.run_shards(shards, encoding.encode_shard, checkpoint, report=on_batch)
    checkpoint.delete()


def with_engine(engine: Engine, encoding: Encoding, store: VectorStore, *, progress: bool = False) -> VectorStore:
    """The store, with missing texts computed by the engine from now on, and a bar if `progress`."""
    store.encode_missing = partial(encode_into_store, engine, encoding, store, progress)
    return store

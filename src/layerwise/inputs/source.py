"""Examples and their ids: a stream of payloads whose ids do not depend on their order."""

import hashlib
import heapq
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from layerwise.core.errors import InputError
from layerwise.runs.summary import counted


class Occurrences:
    """Counts how often each text was seen before, by 64-bit hashes, in about twenty bytes per text.

    Hashes seen once are in a compact table, repeated ones in a dictionary.
    """

    def __init__(self) -> None:
        self.table, self.used = array("Q", bytes(8 * 1024)), 0
        self.repeated: Counter[int] = Counter()

    def count_and_add(self, number: int) -> int:
        """How often this number was seen before; also records it."""
        number = number or 1  # 0 marks a free slot
        if (slot := self._free_slot(number)) is None:
            self.repeated[number] += 1
            return self.repeated[number]
        self.table[slot] = number
        self.used += 1
        if 5 * self.used > 3 * len(self.table):
            self._grow()
        return 0

    def _free_slot(self, number: int) -> int | None:
        """The free slot for a new number; None if the number is already in the table."""
        table, mask = self.table, len(self.table) - 1
        slot = number & mask
        while (entry := table[slot]) != number:
            if not entry:
                return slot
            slot = (slot + 1) & mask
        return None

    def _grow(self) -> None:
        old, self.table = self.table, array("Q", bytes(16 * len(self.table)))
        for number in old:
            if number and (slot := self._free_slot(number)) is not None:
                self.table[slot] = number


def hash_id(example_id: str) -> int:
    """A signed 64-bit hash of an example id, the same on every machine; samples are drawn in this order."""
    data = example_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


@runtime_checkable
class HasContent(Protocol):
    """A custom payload, such as audio with its sampling rate, that provides its own bytes."""

    def content_bytes(self) -> bytes: ...


Payload = str | bytes | npt.NDArray[Any] | HasContent  # the content of an example: a text, bytes of a file, or an array
Label = str | int | float
Labels = Mapping[str, Label]  # the labels of one example, by the name of their column
# A row of a source: its id or None, its payload or None for a blank row, and its labels if it has any.
SourceRow = tuple[str | None, Payload | None] | tuple[str | None, Payload | None, Labels]


def content_bytes(payload: Payload) -> bytes:
    """The bytes that identify a payload: the same on every machine, and different for different content."""
    if isinstance(payload, str):
        return payload.encode("utf-8", "surrogatepass")
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, np.ndarray):
        if payload.dtype.hasobject:
            raise InputError(f"an array of dtype {payload.dtype} cannot be hashed; pass a numeric array")
        return f"{payload.dtype.str} {payload.shape} ".encode() + payload.tobytes()
    if isinstance(payload, HasContent):
        return payload.content_bytes()
    kinds = "a text, bytes, a numpy array, or an object with a method content_bytes()"
    raise InputError(f"an example cannot hold a {type(payload).__name__}; use {kinds}")


@dataclass(frozen=True, eq=False)
class Clip:
    """Samples of an audio clip with their rate.

    Args:
        samples: (N,) or (N, channels); float from -1 to 1, or integers.
        rate: samples per second.

    Example:
        >>> import numpy as np
        >>> clips = layerwise.audio([layerwise.Clip(np.zeros(8000), 16000)])
        >>> len(list(clips))
        1
    """

    samples: npt.NDArray[Any]
    rate: int

    def content_bytes(self) -> bytes:
        """The bytes that identify the clip."""
        return f"{self.rate} ".encode() + content_bytes(self.samples)


@dataclass(frozen=True)
class TaggedWords:
    """The words of a sentence, with one label per word in each column of labels. Labels are no part of its identity."""

    words: tuple[str, ...]
    labels: Mapping[str, tuple[Label, ...]] = field(default_factory=dict, compare=False)

    @property
    def text(self) -> str:
        """What the model reads: the words with a space between them."""
        return " ".join(self.words)

    def content_bytes(self) -> bytes:
        return json.dumps(self.words).encode()


@dataclass(frozen=True, eq=False)
class Example:
    """A model input and its id.

    Args:
        id: from an id column if there is one, otherwise a hash of the content.
        payload: the input: a text, bytes, an array, or an object with `content_bytes()`.
        labels: its labels, by the name of their column. They are no part of its identity.
    """

    id: str
    payload: Payload
    labels: Labels = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Compares id and content; arrays would otherwise compare element by element."""
        return isinstance(other, Example) and (self.id, self.content) == (other.id, other.content)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def content(self) -> bytes:
        """The bytes that identify the input."""
        return content_bytes(self.payload)

    @property
    def text(self) -> str:
        """The payload as text; raises if it is not a text."""
        if isinstance(self.payload, TaggedWords):
            return self.payload.text
        if not isinstance(self.payload, str):
            raise InputError(f"example {self.id} is a {type(self.payload).__name__}, not a text")
        return self.payload

    @property
    def key(self) -> int:
        """The sort key of samples; depends only on the id."""
        return hash_id(self.id)

    @property
    def digest(self) -> int:
        """A signed 64-bit hash of id and content, to check whether two runs used the same example."""
        content = b"\0".join((self.id.encode("utf-8", "surrogatepass"), self.content))
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True)
class Source:
    """A stream of examples that can be read again and again; `texts` makes one.

    Args:
        name: what it is called in messages and records.
        rows: function that returns an id (or None) and an input (None for a blank row) for each row, and its labels as
            a third item if it has any (`with_labels` adds them).
        remote: whether reading it means downloading it.
        options: options that open it again; empty if none do.
        unit: what one input is called in messages.
    """

    name: str
    rows: Callable[[], Iterable[SourceRow]]
    remote: bool = False  # iterating downloads the data
    options: Mapping[str, Any] = field(
        default_factory=dict, compare=False
    )  # options that reopen it; {} if it cannot be reopened
    unit: str = "text"  # what messages call one payload

    def __iter__(self) -> Iterator[Example]:
        """The examples, without blank rows. Raises if there are none."""
        return self.examples()

    def examples(self, on_blank: Callable[[], None] = lambda: None) -> Iterator[Example]:
        """The examples, without blank rows.

        Args:
            on_blank: called for each blank row.
        """
        for _, example in self.all_rows():
            if example is None:
                on_blank()
            else:
                yield example

    def all_rows(self) -> Iterator[tuple[str | None, Example | None]]:
        """All rows in order: the id from the data, if any, and the example, or None if the row is blank."""
        occurrences, seen_ids, any_example = Occurrences(), set[str](), False
        for given_id, payload, *labels in self.rows():
            if given_id is not None:
                if given_id in seen_ids:
                    raise InputError(f"the id {given_id!r} occurs twice in {self.name}; ids must be unique")
                seen_ids.add(given_id)
            any_example = any_example or payload is not None
            if payload is None:
                yield given_id, None
            else:
                example_id = content_id(payload, occurrences) if given_id is None else given_id
                yield given_id, Example(example_id, payload, *labels)
        if not any_example:
            raise InputError(f"{self.name} contains no {self.unit}s")

    def payloads(self) -> Iterator[tuple[str | None, Payload]]:
        """Ids from the data (or None) and payloads."""
        return ((given_id, payload) for given_id, payload, *_ in self.rows() if payload is not None)

    def count(self, limit: int) -> tuple[int, bool]:
        """How many examples there are, and whether that is all of them.

        Args:
            limit: counting stops here. Remote data are not counted.
        """
        total = limit if self.remote else sum(1 for _ in islice(self.payloads(), limit))
        return total, total < limit

    def filter(self, predicate: Callable[[Payload], bool], description: str) -> "Source":
        """Only the examples whose input passes a test.

        Args:
            predicate: the test, a function of the input.
            description: what is kept, for the name of the new source.
        """
        filtered_rows = lambda: (row for row in self.rows() if row[1] is not None and predicate(row[1]))  # noqa: E731
        return replace(self, name=f"{self.name} ({description})", rows=filtered_rows)

    def first(self, n: int) -> "Source":
        """The first n examples, with the blank rows among them.

        Args:
            n: how many.
        """

        def rows() -> Iterator[SourceRow]:
            remaining = n
            for row in self.rows():
                remaining -= row[1] is not None
                yield row
                if not remaining:
                    return

        return replace(self, name=f"{self.name} (first {n})", rows=rows)

    def sample(self, n: int) -> "Source":
        """A random sample: the n examples with the smallest hashed ids, whatever their order.

        Args:
            n: how many.
        """

        def rows() -> Iterator[SourceRow]:
            chosen = heapq.nsmallest(n, self, key=lambda example: example.key)
            return ((example.id, example.payload, example.labels) for example in chosen)

        return replace(self, name=f"{self.name} (sample of {n})", rows=rows)

    def with_labels(self, columns: Mapping[str, Sequence[Label]]) -> "Source":
        """The same examples with labels, for `probe`.

        Args:
            columns: one label per row of the source, blank rows included, for each name of a label.
        """
        lengths = {name: len(labels) for name, labels in columns.items()}
        count = next(iter(lengths.values()), 0)
        if len(set(lengths.values())) != 1:
            raise InputError(f"columns of labels must be equally long and at least one, not {lengths}")

        def rows() -> Iterator[SourceRow]:
            number = 0
            for number, (given_id, payload, *earlier) in enumerate(self.rows(), start=1):
                if number <= count:
                    own = {name: labels[number - 1] for name, labels in columns.items()}
                    yield given_id, payload, {**(earlier[0] if earlier else {}), **own}
            if number != count:
                raise InputError(
                    f"{self.name} has {counted(number, 'row')}, but there are {count} labels; pass one per row"
                )

        return replace(self, rows=rows)


def content_key(payload: Payload) -> str:
    """A hash of the content: the same for equal inputs."""
    return hashlib.blake2b(content_bytes(payload), digest_size=8).hexdigest()


def content_id(payload: Payload, occurrences: Occurrences) -> str:
    """A hash of the content; repeats get an occurrence number, so that ids do not depend on the order."""
    content = bytes.fromhex(content_key(payload))
    repeats = occurrences.count_and_add(int.from_bytes(content, "little"))
    return content.hex() + (f"-{repeats}" if repeats else "")


def shards(examples: Iterable[Example], size: int) -> Iterator[list[Example]]:
    """Splits the stream into shards of `size` examples; shard i is the same for every worker."""
    stream = iter(examples)
    while shard := list(islice(stream, size)):
        yield shard


class PillowImage(Protocol):
    """An image of Pillow, which need not be installed."""

    @property
    def mode(self) -> str: ...
    def convert(self, mode: str, /) -> Any: ...


# An audio clip in memory: a path, the bytes of a file, samples with their rate, or what `datasets` stores.
ClipLike = str | Path | bytes | Clip | tuple[npt.NDArray[Any], int] | Mapping[str, object]
# An image in memory: a path, the bytes of a file, pixels, a Pillow image, or what `datasets` stores.
ImageLike = str | Path | bytes | npt.NDArray[np.uint8] | PillowImage | Mapping[str, object]
# What a function takes as data: a file, a folder, a hub data set, `demo` or `-`; texts, clips or images in memory; or a
# source.
DataLike = str | Path | Iterable[str] | Iterable[ClipLike] | Iterable[ImageLike] | Source

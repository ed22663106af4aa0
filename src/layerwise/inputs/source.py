"""Examples and their ids: a stream of texts in which every text has a name that does not depend on its place."""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from layerwise.core.errors import InputError
from layerwise.inputs.occurrences import Occurrences


def hash_id(example_id: str) -> int:
    """A signed 64-bit hash of an example id, the same on every machine: the order in which samples are drawn."""
    data = example_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True)
class Example:
    """One text and its id: a column of the data if one was named, else a hash of the text."""

    id: str
    text: str

    @property
    def key(self) -> int:
        """Orders samples; the same for any text under this id."""
        return hash_id(self.id)

    @property
    def digest(self) -> int:
        """A signed 64-bit hash of id and text: what tells whether two runs saw the same example."""
        content = b"\0".join(part.encode("utf-8", "surrogatepass") for part in (self.id, self.text))
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little", signed=True)


@dataclass(frozen=True)
class Source:
    """Where texts come from, in words, and how to go through them; can be gone through again and again."""

    name: str
    rows: Callable[[], Iterable[tuple[str | None, str | None]]]  # (id or None, text or None where a row has none)
    remote: bool = False  # going through it means downloading it
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)  # what opens it again; {} if nothing does

    def __iter__(self) -> Iterator[Example]:
        """The examples; rows without a text are passed over. Raises where there is no text at all."""
        return self.examples()

    def examples(self, on_blank: Callable[[], None] = lambda: None) -> Iterator[Example]:
        """The examples; `on_blank` is called for each row that has no text."""
        for _, example in self.every_row():
            if example is None:
                on_blank()
            else:
                yield example

    def every_row(self) -> Iterator[tuple[str | None, Example | None]]:
        """Every row in its place: the id that it was given, if any, and its example, None where it has no text."""
        occurrences, named, some = Occurrences(), set[str](), False
        for given, text in self.rows():
            if given is not None:
                if given in named:
                    raise InputError(f"the id {given!r} occurs twice in {self.name}; ids must be unique")
                named.add(given)
            some = some or text is not None
            if text is None:
                yield given, None
            else:
                yield given, Example(content_id(text, occurrences) if given is None else given, text)
        if not some:
            raise InputError(f"{self.name} holds no text; nothing can be computed")

    def texts(self) -> Iterator[tuple[str | None, str]]:
        """Ids that were given, and texts."""
        return ((given, text) for given, text in self.rows() if text is not None)

    def count(self, at_most: int) -> tuple[int, bool]:
        """How many texts there are, and whether that is all: counting stops at a number, and is not begun online."""
        found = at_most if self.remote else sum(1 for _ in islice(self.texts(), at_most))
        return found, found < at_most

    def where(self, keep: Callable[[str], bool], said: str) -> "Source":
        """Only the texts that `keep` accepts."""
        kept = lambda: ((i, text) for i, text in self.texts() if keep(text))  # noqa: E731
        return replace(self, name=f"{self.name} ({said})", rows=kept)

    def first(self, n: int) -> "Source":
        """The first n texts, and the rows without a text among them."""

        def rows() -> Iterator[tuple[str | None, str | None]]:
            left = n
            for given, text in self.rows():
                left -= text is not None
                yield given, text
                if not left:
                    return

        return replace(self, name=f"{self.name} (first {n})", rows=rows)

    def sample(self, n: int) -> "Source":
        """The n texts whose hashed ids are smallest: a fair sample that does not depend on the order."""

        def rows() -> Iterator[tuple[str | None, str]]:
            chosen = heapq.nsmallest(n, self, key=lambda example: example.key)
            return ((example.id, example.text) for example in chosen)

        return replace(self, name=f"{self.name} (sample of {n})", rows=rows)


def content_id(text: str, occurrences: Occurrences) -> str:
    """A hash of the text; a repeated one gets an occurrence number, so that order never matters."""
    content = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    before = occurrences.before(int.from_bytes(content, "little"))
    return content.hex() + (f"-{before}" if before else "")


def shards(examples: Iterable[Example], size: int) -> Iterator[list[Example]]:
    """The stream cut into runs of `size` examples: shard i is the same whoever works on it."""
    stream = iter(examples)
    while shard := list(islice(stream, size)):
        yield shard

"""Labelled examples before the model runs: who trains, who tests, and whether the labels can be used."""

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from layerwise.core.errors import InputError, RunError
from layerwise.inputs.labels import class_name
from layerwise.inputs.source import Example, Source, hash_id
from layerwise.runs.identity import data_fingerprint
from layerwise.runs.summary import counted

MIN_TRAIN = 10
HELD_OUT_EVERY = 5  # one in five training examples is held out to choose settings
Role = Literal["train", "test"]


@dataclass(frozen=True)
class LabelledExample:
    """What is kept of an example until its features are read: not its input."""

    id: str
    digest: int
    content: bytes  # a hash of the input alone
    labels: tuple[str, ...]
    role: Role


@dataclass(frozen=True)
class LabelledSet:
    """The examples that are used, train before test, each in an order that does not depend on the data's order."""

    sources: tuple[Source, ...]
    columns: tuple[str, ...]
    examples: tuple[LabelledExample, ...]  # in the order of the data
    left_out: int = 0  # test examples whose content is also in the training data
    blank_rows: int = 0

    def indices(self, role: Role) -> NDArray[np.int64]:
        """Places of the examples with this role, ordered by their digests."""
        chosen = [i for i, example in enumerate(self.examples) if example.role == role]
        return np.array(sorted(chosen, key=lambda i: self.examples[i].digest), dtype=np.int64)

    def fingerprint(self, role: Role) -> str:
        digests = [example.digest for example in self.examples if example.role == role]
        return data_fingerprint(len(digests), sum(digests))

    def inputs(self) -> Iterator[Example]:
        """Reads the data again: the examples that are used, with their inputs."""
        used, place = {(example.role, example.digest) for example in self.examples}, 0
        split = len(self.sources) == 1
        for number, source in enumerate(self.sources):
            for example in source:
                roles: tuple[Role, ...] = ("train", "test") if split else (("train", "test")[number],)
                if any((role, example.digest) in used for role in roles):
                    if place >= len(self.examples) or self.examples[place].digest != example.digest:
                        raise RunError(f"{source.name} has changed since the run started; start it again")
                    place += 1
                    yield example
        if place != len(self.examples):
            raise RunError(f"{self.sources[-1].name} has changed since the run started; start it again")


@dataclass(frozen=True)
class LabelTask:
    """One column of labels as a task: classes as numbers, and which training examples are held out."""

    column: str
    classes: tuple[str, ...]  # of the training data
    train: NDArray[np.int64]
    test: NDArray[np.int64]  # -1 for a class that is not in the training data
    fitted: NDArray[np.int64]  # places in `train` to fit on while settings are chosen
    held_out: NDArray[np.int64]  # places in `train` to choose settings on
    fingerprint: str = ""  # of the labels with their examples
    seed: int = 0
    unseen: tuple[str, ...] = field(default=())  # classes of the test data that are not in the training data
    further: tuple[NDArray[np.int64], ...] = ()  # places that are held out after `held_out`, to compare layers on more
    sentences: NDArray[np.int64] | None = None  # of each test word, where words have labels; then whole ones are drawn
    guessed: NDArray[np.int64] | None = None  # for each test word, the most frequent label of that word

    @property
    def most_frequent(self) -> float:
        """Accuracy of always guessing the most frequent class of the training data, from 0 to 1."""
        return float(np.mean(self.test == np.bincount(self.train).argmax()))

    def to_record(self) -> dict[str, Any]:
        return {
            "classes": len(self.classes),
            "names": list(self.classes),
            "train": len(self.train),
            "held_out": len(self.held_out),
            "test": len(self.test),
            "unseen_classes": list(self.unseen),
            "unseen_examples": int((self.test < 0).sum()),
            "most_frequent": 100 * self.most_frequent,
        }


def read_labelled(
    train: Source, test: Source | None, columns: Sequence[str], *, test_share: float, seed: int
) -> LabelledSet:
    """Reads all examples once, without keeping their inputs, and decides which are used.

    Without test data, a share of the examples tests: those with the smallest hashes of seed and content, so that equal
    inputs are on the same side. A test example whose input is also in the training data would be recognised instead of
    understood; it is left out, with a warning.
    """
    blanks = 0

    def on_blank() -> None:
        nonlocal blanks
        blanks += 1

    found: list[LabelledExample] = []
    sources = (train,) if test is None else (train, test)
    for number, source in enumerate(sources):
        for example in source.examples(on_blank):
            content = hashlib.blake2b(example.content, digest_size=16).digest()
            is_test = number == 1 if test is not None else share_of(content, seed) < test_share
            labels = labels_of(example, columns, source)
            found.append(LabelledExample(example.id, example.digest, content, labels, "test" if is_test else "train"))
    trained = {example.content for example in found if example.role == "train"}
    used = [example for example in found if example.role == "train" or example.content not in trained]
    left_out = len(found) - len(used)
    counts = Counter(example.role for example in used)
    where = sources[-1].name
    if not counts["test"]:
        raise InputError(
            f"every test example of {where} is also in the training data; pass other data to --test" if left_out
            else f"{where} leaves no example to test on; pass --test, or a larger --test-share"
        )  # fmt: skip
    if counts["train"] < MIN_TRAIN:
        few = counted(counts["train"], "training example")
        raise InputError(f"{few} of {train.name} are too few; pass at least {MIN_TRAIN}")
    if left_out:
        warnings.warn(
            f"left out {left_out:,} of {left_out + counts['test']:,} test examples that are also in the training data",
            stacklevel=2,
        )
    return LabelledSet(sources, tuple(columns), tuple(used), left_out, blanks)


def share_of(content: bytes, seed: int) -> float:
    """A number from 0 to 1 that depends on the seed and the content only."""
    return int.from_bytes(hashlib.blake2b(content + f"{seed}".encode(), digest_size=8).digest(), "big") / 2**64


def labels_of(example: Example, columns: Sequence[str], source: Source) -> tuple[str, ...]:
    """The labels of an example, as names of classes."""
    if missing := [name for name in columns if name not in example.labels]:
        has = f"it has {', '.join(example.labels)}" if example.labels else "it has none"
        raise InputError(f"{source.name} has no label {missing[0]!r} for example {example.id}; {has}")
    return tuple(class_name(example.labels[name]) for name in columns)


def label_task(labelled: LabelledSet, column: str, seed: int) -> LabelTask:
    """The task of one column; raises if its labels are no classes; warns of classes that only the test data have."""
    place, examples = labelled.columns.index(column), labelled.examples
    train = [examples[i] for i in labelled.indices("train")]
    test = [examples[i] for i in labelled.indices("test")]
    train_labels, test_labels = ([example.labels[place] for example in part] for part in (train, test))
    codes = np.unique(np.array(train_labels, dtype=object), return_inverse=True)[1]
    parts = fifths(codes, [example.digest for example in train], seed)
    lines = [f"{example.role} {example.digest} {example.labels[place]}" for example in (*train, *test)]
    return make_task(column, train_labels, test_labels, parts, lines, seed)


def make_task(
    column: str,
    train: Sequence[str],
    test: Sequence[str],
    parts: Sequence[NDArray[np.int64]],
    lines: Iterable[str],
    seed: int,
    unit: str = "example",
) -> LabelTask:
    """A task from the labels of each example to train and test on, and the places in `train` to hold out in turn."""
    classes = tuple(sorted(set(train)))
    if len(classes) < 2:
        every = f"all training {unit}s have the {column} {classes[0]!r}" if classes else f"no training {unit} is left"
        raise InputError(f"{every}; a probe needs at least two classes")
    if len(classes) > len(train) / 2:
        raise InputError(
            f"{column} has {len(classes):,} values in {len(train):,} training {unit}s; probes predict classes, each "
            f"with several {unit}s"
        )
    code = {name: number for number, name in enumerate(classes)}
    targets = np.array([code[label] for label in train], dtype=np.int64)
    tested = np.array([code.get(label, -1) for label in test], dtype=np.int64)
    unseen = tuple(sorted(set(test) - set(classes)))
    if unseen:
        count = int((tested < 0).sum())
        warnings.warn(
            f"{counted(count, f'test {unit}')} have a {column} that is not in the training data "
            f"({', '.join(unseen[:3])}{', ...' if len(unseen) > 3 else ''}); they count as wrong",
            stacklevel=2,
        )
    held_out, *further = parts
    fitted = np.setdiff1d(np.arange(len(targets)), held_out)
    fingerprint = hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
    return LabelTask(column, classes, targets, tested, fitted, held_out, fingerprint, seed, unseen, tuple(further))


def fifths(targets: NDArray[np.int64], digests: Sequence[int], seed: int) -> list[NDArray[np.int64]]:
    """Parts to hold out one after another: one in five examples of each class, by hashes of seed and example.

    The only example of a class is in none of them.
    """
    hashes = [hash_id(f"{seed} {digest}") for digest in digests]
    by_class = sorted(range(len(targets)), key=lambda i: (targets[i], hashes[i]))
    sizes = np.bincount(targets)
    starts = [(HELD_OUT_EVERY // 2 + number) % HELD_OUT_EVERY for number in range(HELD_OUT_EVERY)]
    chosen = [[i for i in by_class[start::HELD_OUT_EVERY] if sizes[targets[i]] > 1] for start in starts]
    return [np.array(sorted(places), dtype=np.int64) for places in chosen]

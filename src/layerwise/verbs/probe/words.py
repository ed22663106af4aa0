"""Labels of single words (parts of speech, named entities): which words are used, and their labels as a task."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.core.errors import InputError
from layerwise.inputs.labels import class_name
from layerwise.inputs.source import Example, Source, TaggedWords, hash_id, shards
from layerwise.inputs.words import CUT, NO_TOKEN, require_words, word_tokens
from layerwise.metrics.intervals import group_bootstrap
from layerwise.runs.summary import counted
from layerwise.verbs.probe.labelled import HELD_OUT_EVERY, LabelledSet, LabelTask, Role, make_task

MOST_VALUES = 2**25  # of one layer, words x width, to train and to test on each: 128 MB in float32
MIN_TEST = 10  # sentences, because intervals are over sentences
SHARD = 1024  # sentences that are tokenized together
FIRST_TOKEN = "first token of each word"


def has_words(source: Source) -> bool:
    return isinstance(next(iter(source)).payload, TaggedWords)


@dataclass
class UsedWords:
    """The words of the sentences with one role that have a token, sentence after sentence."""

    lengths: list[int] = field(default_factory=list)  # how many words each sentence has
    words: list[str] = field(default_factory=list)
    labels: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    truncated: int = 0
    without_token: int = 0

    def add(self, sentence: TaggedWords, tokens: Sequence[int], columns: Iterable[str]) -> None:
        kept = [place for place, token in enumerate(tokens) if token >= 0]
        self.lengths.append(len(kept))
        self.words += [sentence.words[place] for place in kept]
        for column in columns:
            self.labels[column] += [class_name(sentence.labels[column][place]) for place in kept]
        self.truncated += sum(token == CUT for token in tokens)
        self.without_token += sum(token == NO_TOKEN for token in tokens)

    @property
    def sentences(self) -> NDArray[np.int64]:
        """The number of the sentence of each word."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def to_record(self) -> dict[str, int]:
        return {
            "sentences": len(self.lengths), "words": len(self.words), "truncated": self.truncated,
            "without_token": self.without_token,
        }  # fmt: skip


@dataclass(frozen=True)
class WordSet:
    """The words to train and to test on, in the order of `LabelledSet.indices`."""

    train: UsedWords
    test: UsedWords
    left_out: int  # sentences, because they would not fit into memory

    def task(self, labelled: LabelledSet, column: str, seed: int) -> LabelTask:
        """The task of one column, with one example per word. Whole sentences are held out."""
        examples = [labelled.examples[i] for role in ROLES for i in labelled.indices(role)]
        labels = self.train.labels[column], self.test.labels[column]
        keys = [hash_id(f"{seed} {one.digest}") for one in examples[: len(self.train.lengths)]]
        part = np.argsort(np.argsort(keys)) % HELD_OUT_EVERY  # of each sentence
        parts = [np.flatnonzero(part[self.train.sentences] == number) for number in range(HELD_OUT_EVERY)]
        lines = [f"{one.role} {one.digest}" for one in examples] + [*labels[0], *labels[1]]
        task = make_task(column, *labels, parts, lines, seed, unit="word")
        by_word = most_frequent_labels(self.train.words, task.train)
        fallback = int(np.bincount(task.train).argmax())
        guessed = np.array([by_word.get(word, fallback) for word in self.test.words], dtype=np.int64)
        return replace(task, sentences=self.test.sentences, guessed=guessed)

    def to_record(self) -> dict[str, Any]:
        return {"train": self.train.to_record(), "test": self.test.to_record(), "sentences_left_out": self.left_out}


ROLES: tuple[Role, ...] = ("train", "test")


def most_frequent_labels(words: Sequence[str], codes: NDArray[np.int64]) -> dict[str, int]:
    """The most frequent label of each word of the training data; of equally frequent ones, the first class."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for word, code in zip(words, codes.tolist(), strict=True):
        counts[word][code] += 1
    return {word: max(found, key=lambda code: (found[code], -code)) for word, found in counts.items()}


def read_words(
    tokenizer: Any, labelled: LabelledSet, columns: Sequence[str], *, max_length: int, width: int, seed: int
) -> tuple[LabelledSet, WordSet]:
    """The sentences whose words fit into memory at one layer, and their words with a token of their own."""
    chosen = chosen_sentences(labelled, MOST_VALUES // width, seed)
    left_out = len(labelled.examples) - len(chosen.examples)
    if left_out:
        warnings.warn(
            f"left out {counted(left_out, 'sentence')} of {len(labelled.examples):,}, at random with seed {seed}: at "
            f"most {MOST_VALUES // width:,} words to train and to test on each, of width {width}, are kept in memory",
            stacklevel=2,
        )
    found: dict[int, tuple[TaggedWords, list[int]]] = {}
    place = 0
    for examples in shards(chosen.inputs(), SHARD):
        for example, tokens in zip(examples, word_tokens(tokenizer, examples, max_length), strict=True):
            sentence = require_words(example)
            if missing := [name for name in columns if name not in sentence.labels]:
                has = ", ".join(sentence.labels) or "none"
                raise InputError(f"example {example.id} has no labels {missing[0]!r} of its words; it has {has}")
            found[place] = sentence, tokens
            place += 1
    used = {role: UsedWords() for role in ROLES}
    for role in ROLES:
        for index in chosen.indices(role).tolist():
            used[role].add(*found[index], columns)
    words = WordSet(used["train"], used["test"], left_out)
    if sum(length > 0 for length in words.test.lengths) < MIN_TEST:
        few = counted(len(words.test.lengths), "test sentence")
        raise InputError(f"{few} are too few for an interval over sentences; pass at least {MIN_TEST} with a word each")
    if truncated := words.train.truncated + words.test.truncated:
        warnings.warn(
            f"left out {counted(truncated, 'word')} behind the first {max_length} tokens of their sentences; a larger "
            "max_length (--max-length) keeps more",
            stacklevel=2,
        )
    return chosen, words


def chosen_sentences(labelled: LabelledSet, most: int, seed: int) -> LabelledSet:
    """At most so many words to train on, and to test on: sentences in the order of a hash, until one does not fit."""
    counts = [len(require_words(example).words) for example in labelled.inputs()]
    kept = set[int]()
    for role in ROLES:
        indices = labelled.indices(role).tolist()
        total = 0
        for index in sorted(indices, key=lambda i: hash_id(f"{seed} {labelled.examples[i].digest}")):
            total += counts[index]
            if total > most:
                break
            kept.add(index)
    return replace(labelled, examples=tuple(one for i, one in enumerate(labelled.examples) if i in kept))


def places_to_keep(tokenizer: Any, examples: Sequence[Example], max_length: int) -> Mapping[int, list[int]]:
    """The places of the first tokens of the words of each sentence, by its digest."""
    tokens = word_tokens(tokenizer, examples, max_length)
    return {e.digest: [place for place in of_words if place >= 0] for e, of_words in zip(examples, tokens, strict=True)}


def guess_record(task: LabelTask) -> dict[str, Any]:
    """The accuracy of the most frequent class, and of the most frequent label of each word, with intervals."""
    assert task.sentences is not None and task.guessed is not None
    right = {
        "most_frequent": task.test == np.bincount(task.train).argmax(),
        "most_frequent_of_word": task.guessed == task.test,
    }
    record: dict[str, Any] = {}
    for name, one in right.items():
        low, high = group_bootstrap(one, task.sentences, task.seed)
        record |= {name: 100 * float(one.mean()), f"{name}_ci": [100 * low, 100 * high]}
    return record

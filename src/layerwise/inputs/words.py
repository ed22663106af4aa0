"""Sentences with a label per word: from a .conll file or a table of lists, and which token each word starts with."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.quiet import quiet_libraries
from layerwise.inputs.source import Example, Label, Source, SourceRow, TaggedWords
from layerwise.inputs.tables import (
    ENCODING,
    is_missing,
    read_records,
    readable,
    require_no_surrogates,
    require_text,
    require_text_file,
)
from layerwise.inputs.text import missing_column_message, row_id
from layerwise.inputs.tokenizing import encode_texts
from layerwise.runs.summary import counted

CONLL = ".conll"
NAMES = "# global.columns ="  # a first line that names the columns, as in CoNLL-U Plus
DOCUMENT = "-DOCSTART-"  # a line of CoNLL-2003 that is no word
TEXT = "text"  # the default column, which in a .conll file is the first
TAB, SPACES = re.compile("\t"), re.compile(r"[ \t]+")
CUT, NO_TOKEN = -1, -2  # in place of a token: the word was truncated away, or no token starts with it


def labels_words(path: Path, column: str) -> bool:
    """True for a file that has a label per word, not per text."""
    if not path.is_file() or path.suffix not in (CONLL, ".jsonl", ".parquet"):
        return False
    if path.suffix == CONLL:
        return True
    try:
        return isinstance(next(iter(read_records(path, [column])), {}).get(column), list)
    except InputError:  # it is reported where the file is opened
        return False


def word_source(path: Path, column: str, id_column: str | None, labels: Sequence[str]) -> Source:
    """The sentences of such a file."""
    if path.suffix == CONLL:
        require_text_file(path, [CONLL])
        if id_column is not None:
            raise InputError(f"{path} has no ids of sentences; leave out id_column (--id-column)")
        rows = lambda: conll_rows(path, column, labels)  # noqa: E731
    else:
        rows = lambda: table_rows(path, column, id_column, labels)  # noqa: E731
    return Source(str(path), rows, options={"data": str(path), "column": column}, unit="sentence")


def table_rows(path: Path, column: str, id_column: str | None, labels: Sequence[str]) -> Iterator[SourceRow]:
    flags = {column: "--column"} | ({id_column: "--id-column"} if id_column else {}) | dict.fromkeys(labels, "--label")
    for row, record in enumerate(read_records(path, [*flags]), start=1):
        for name, flag in flags.items():
            if name not in record:
                raise InputError(missing_column_message(str(path), name, flag, [*map(str, record)]))
        place = f"{path}, row {row}"
        words = [require_text(word, column, place) for word in cells_of(record[column], column, place)]
        found = {name: word_labels(cells_of(record[name], name, place), name, place) for name in labels}
        for name, of_words in found.items():
            if len(of_words) != len(words):
                raise InputError(f"{place}: {column} has {len(words)} items, but {name} has {len(of_words)}")
        given_id = row_id(record[id_column], place, id_column) if id_column else None
        yield given_id, TaggedWords(tuple(words), found) if words else None


def cells_of(cell: Any, name: str, place: str) -> list[Any]:
    if not isinstance(cell, list):
        raise InputError(f"{place}: {name} must be a list with one item per word, but is {cell!r}")
    return cell


def word_labels(cells: Sequence[Any], name: str, place: str) -> tuple[Label, ...]:
    for cell in cells:
        if is_missing(cell) or not isinstance(cell, str | int | float):
            raise InputError(f"{place}: {name} must hold texts or numbers, but holds {cell!r}")
    return tuple(cells)


def conll_rows(path: Path, column: str, labels: Sequence[str]) -> Iterator[SourceRow]:
    """A word per line, a blank line between sentences; between columns tabs if the first line has any, else spaces.

    Columns are called by their number from 1, or by the names in a first line `# global.columns = FORM POS NER`.
    """
    words: list[str] = []
    found: dict[str, list[Label]] = {name: [] for name in labels}
    for place, cells in conll_cells(path, {column: "--column"} | dict.fromkeys(labels, "--label")):
        if cells is not None:
            words.append(require_text(cells[column], column, place))
            for name in labels:
                found[name].append(cells[name])
        elif words:
            yield None, TaggedWords(tuple(words), {name: tuple(of_words) for name, of_words in found.items()})
            words, found = [], {name: [] for name in labels}


def conll_cells(path: Path, flags: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str] | None]]:
    """The place of each line and its cells in these columns; None for a blank line, and at the end."""
    names: list[str] = []
    separator, count, places = SPACES, 0, dict[str, int]()
    with readable(path), path.open(encoding=ENCODING) as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            if number == 1 and line.startswith(NAMES):
                names = line.removeprefix(NAMES).split()
            elif not line.strip():
                yield where, None
            elif not line.startswith(DOCUMENT):
                if not places:
                    separator = TAB if "\t" in line else SPACES
                    count = len(separator.split(line.strip("\r\n ")))
                    places = {name: column_place(path, name, names, count, flag) for name, flag in flags.items()}
                cells = separator.split(line.strip("\r\n "))
                if len(cells) != count:
                    raise InputError(f"{where} has {counted(len(cells), 'column')}, but the lines before have {count}")
                yield where, {name: cells[place] for name, place in places.items()}
    yield str(path), None


def column_place(path: Path, name: str, names: Sequence[str], count: int, flag: str) -> int:
    """Which column is meant, from 0. The default name of the words is the first."""
    if name in names:
        return names.index(name)
    if name == TEXT and flag == "--column":
        return 0
    if name.isdecimal() and 1 <= int(name) <= count:
        return int(name) - 1
    raise InputError(missing_column_message(str(path), name, flag, [*names, *map(str, range(1, count + 1))]))


def word_tokens(tokenizer: Any, examples: Sequence[Example], max_length: int) -> list[list[int]]:
    """For each word of each sentence, the place of its first token in the input of the model; or CUT or NO_TOKEN.

    The tokens are those of the words with spaces between them, as in any text, and the tokenizer says which characters
    each is made of. Its other way, `is_split_into_words`, drops these spaces for many decoders: `John paid` is read as
    `Johnpaid`.
    """
    require_offsets(tokenizer)
    sentences = [require_words(example) for example in examples]
    texts = [require_no_surrogates(one.text, f"example {e.id}") for one, e in zip(sentences, examples, strict=True)]
    cut = [len(ids) for ids, _ in encode_texts(tokenizer, texts, max_length)]
    with quiet_libraries():  # transformers warns about texts that are too long, before they are cut
        whole = tokenizer(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
    found = []
    for sentence, kept, offsets, special in zip(
        sentences, cut, whole["offset_mapping"], whole["special_tokens_mask"], strict=True
    ):
        removed = len(offsets) - kept
        from_left = getattr(tokenizer, "truncation_side", "right") == "left"
        before, after = special.index(0) if 0 in special else 0, special[::-1].index(0) if 0 in special else 0
        first, last = (before + removed, len(offsets)) if from_left else (0, kept - after)
        shift = removed if from_left else 0
        found.append([
            place if place == NO_TOKEN else (place - shift if first <= place < last else CUT)
            for place in first_tokens(sentence.words, offsets)
        ])  # fmt: skip
    return found


def first_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """For each word, the first token with characters of it; NO_TOKEN if there is none, or it has some of another word.

    Args:
        words: they are in the text one after another, with a space between them.
        offsets: where each token starts and ends in that text; equal where it has no characters.
    """
    places, token, start, word_before = [], 0, 0, 0
    for word in words:
        end = start + len(word)
        while token < len(offsets) and (offsets[token][1] <= start or offsets[token][0] == offsets[token][1]):
            token += 1
        is_own = token < len(offsets) and word_before <= offsets[token][0] < end
        places.append(token if is_own else NO_TOKEN)
        word_before, start = end if word else word_before, end + 1
    return places


def require_words(example: Example) -> TaggedWords:
    if not isinstance(example.payload, TaggedWords):
        raise InputError(f"example {example.id} has no labels of words, unlike others")
    return example.payload


def require_offsets(tokenizer: Any) -> None:
    """Raises unless the tokenizer can say which characters each token is made of."""
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(
            "labels of words need a fast tokenizer, because only that gives the place of each token; "
            f"{type(tokenizer).__name__} is none, so no token can be assigned to a word"
        )

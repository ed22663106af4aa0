"""Texts from a list, a file (.txt, .jsonl, .csv, .parquet), standard input, a hub data set, or the bundled demo."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.quiet import quiet_libraries
from layerwise.inputs.source import Source
from layerwise.inputs.tables import ENCODING, read_records, require_text
from layerwise.inputs.tokenizing import tokens_in
from layerwise.options.record import plain_options
from layerwise.options.texts import TextFilter, TextOptions

Row = tuple[str | None, str | None]  # id or None, text or None where there is none
SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")


def open_texts(
    data: str | Path | Iterable[str],
    *,
    column: str = "text",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    only: TextFilter | None = None,
    min_tokens: int = 0,
    tokenizer: Any = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """A Source of texts, filtered first and then cut.

    `only="wikitext"` drops headings, as the paper does; `min_tokens` drops texts that `tokenizer` makes shorter
    than that; `limit` takes the first texts, `sample` a fair sample of that size by hashed ids.
    """
    asked = TextOptions(
        data=data,
        column=column,
        id_column=id_column,
        split=split,
        config=config,
        only=only,
        min_tokens=min_tokens,
        tokenizer=tokenizer,
        limit=limit,
        sample=sample,
    )
    source = from_anywhere(data, column, id_column, split, config)
    if only is not None:
        keep = FILTERS[only]
        source = source.where(lambda text: keep(str(text)), f"only {only} paragraphs")
    if min_tokens:
        if tokenizer is None:
            raise InputError("min_tokens counts tokens, so it needs a tokenizer: pass tokenizer=")
        source = source.where(lambda text: tokens_in(tokenizer, str(text)) >= min_tokens, f">= {min_tokens} tokens")
    if limit is not None:
        source = source.first(limit)
    source = source if sample is None else source.sample(sample)
    in_memory = not isinstance(data, str | Path) or str(data) == "-"
    return replace(source, options={} if in_memory else plain_options(asked))


def from_anywhere(
    data: str | Path | Sequence[str], column: str, id_column: str | None, split: str, config: str | None
) -> Source:
    """A str is `demo`, `-` (standard input), a file, or else the name of a hub data set."""
    if not isinstance(data, str | Path):
        return from_list(data)
    word, path = str(data), Path(data)
    if word == "demo":
        return Source("demo", lambda: ((None, line) for line in demo_texts()))
    if word == "-":
        lines = [line.rstrip("\n") for line in sys.stdin]
        return Source("standard input", lambda: (line_row(line) for line in lines))
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise InputError(f"no file {word!r}; pass a {', '.join(SUFFIXES)} file, -, demo, or a hub data set")
        if path.suffix == ".txt":
            return Source(word, lambda: text_lines(path))
        return Source(word, lambda: table_rows(path, column, id_column))
    if path.exists():
        raise InputError(f"cannot read {word!r}; texts come from {', '.join(SUFFIXES)} files")
    return Source(f"{word}:{split}", lambda: hub_rows(word, config, split, column, id_column), remote=True)


def demo_texts() -> list[str]:
    """Two hundred short original texts that come with layerwise."""
    return (files("layerwise.inputs") / "demo.txt").read_text(encoding="utf-8").splitlines()


def from_list(given: Any) -> Source:
    """Any collection of texts: a list, a generator, a column of a table."""
    if hasattr(given, "columns"):
        raise InputError("pass one column of the table, such as table['text'], not the table")
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        told = "a list of texts, a file, a hub data set, - or demo"
        raise InputError(f"texts cannot be read from a {type(given).__name__}; pass {told}")
    texts = given.to_pylist() if hasattr(given, "to_pylist") else list(given)  # a column of Arrow
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"item {place} of the list is a {type(text).__name__}, not a text")
    texts = [str(text) for text in texts]  # numpy has texts of its own kind
    if not texts:
        raise InputError("the list of texts is empty")
    return Source(f"a list of {len(texts)} texts", lambda: ((None, text) for text in texts))


def text_lines(path: Path) -> Iterator[Row]:
    """Every line; one that is blank has no text."""
    try:
        with path.open(encoding=ENCODING) as file:
            yield from (line_row(line) for line in file)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason}); convert it first, for example with iconv") from None


def line_row(line: str) -> Row:
    return None, line.rstrip("\n") if line.strip() else None


def table_rows(path: Path, column: str, id_column: str | None) -> Iterator[Row]:
    wanted = [column] + ([id_column] if id_column else [])
    return picked(read_records(path, wanted), column, id_column, str(path))


def hub_rows(name: str, config: str | None, split: str, column: str, id_column: str | None) -> Iterator[Row]:
    if find_spec("datasets") is None:
        raise MissingExtra(f"{name!r} is no file here; to read it from the hub: pip install 'layerwise[data]'")
    from datasets import load_dataset

    try:
        with quiet_libraries():
            records = load_dataset(name, config, split=split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot open the hub data set {name!r} (config {config}, split {split}): {error}") from error
    return picked(records, column, id_column, name)


def picked(records: Iterable[dict[str, Any]], column: str, id_column: str | None, where: str) -> Iterator[Row]:
    """Ids and texts out of records; a row whose text is blank or null has none."""
    for row, record in enumerate(records, start=1):
        for name in (column, id_column):
            if name is not None and name not in record:
                option = "--column" if name == column else "--id-column"
                has = ", ".join(map(str, record))
                raise InputError(f"{where} has no column {name!r}; it has {has}. Name another with {option}")
        text = record[column]
        if text is not None and not isinstance(text, str):
            raise InputError(f"{where}, row {row}: column {column!r} holds {type(text).__name__}, not text")
        name = None if id_column is None else id_of(record[id_column], f"{where}, row {row}", id_column)
        yield name, text if text and text.strip() else None


def id_of(value: Any, where: str, column: str) -> str:
    """The id of a row as a text: it must be there, and can be written."""
    if value is None or value == "" or value != value:
        raise InputError(f"{where}: the id in column {column!r} is missing")
    return require_text(str(value), f"column {column!r}", where)


def wikitext_paragraph(text: str) -> bool:
    """True for a paragraph of WikiText, false for its headings (` = Title = `) and blanks."""
    text = text.strip()
    return bool(text) and not (text.startswith("=") and text.endswith("="))


FILTERS: dict[str, Callable[[str], bool]] = {"wikitext": wikitext_paragraph}

"""Texts from a list, a file (.txt, .jsonl, .csv, .parquet), standard input, a hub data set, or the bundled demo."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import files
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.checks import require_options, require_word
from layerwise.errors import InputError, MissingExtra
from layerwise.inputs.source import Source

Row = tuple[str | None, str]
ENCODING = "utf-8-sig"  # UTF-8, with or without the mark that spreadsheets put first
SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")


def open_texts(
    data: str | Path | Sequence[str],
    *,
    column: str = "text",
    id_column: str | None = None,
    split: str = "train",
    config: str | None = None,
    only: str | None = None,
    min_tokens: int = 0,
    tokenizer: Any = None,
    limit: int | None = None,
    sample: int | None = None,
) -> Source:
    """A Source of texts, filtered first and then cut.

    `only="wikitext"` drops headings, as the paper does; `min_tokens` drops texts that `tokenizer` makes shorter
    than that; `limit` takes the first texts, `sample` a fair sample of that size by hashed ids.
    """
    require_options(limit=limit, sample=sample, min_tokens=min_tokens)
    if only is not None:
        require_word("only", only, FILTERS)
    source = from_anywhere(data, column, id_column, split, config)
    if only is not None:
        source = source.where(FILTERS[only], f"only {only} paragraphs")
    if min_tokens:
        if tokenizer is None:
            raise InputError("min_tokens counts tokens, so it needs a tokenizer: pass tokenizer=")
        source = source.where(lambda text: len(tokenizer(text)["input_ids"]) >= min_tokens, f">= {min_tokens} tokens")
    if limit is not None:
        source = source.first(limit)
    return source if sample is None else source.sample(sample)


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
        return Source("standard input", lambda: ((None, line) for line in lines if line.strip()))
    if path.suffix in SUFFIXES:
        if not path.is_file():
            raise InputError(f"no file {word!r}; pass a {', '.join(SUFFIXES)} file, -, demo, or a hub data set")
        if path.suffix == ".txt":
            return Source(word, lambda: readable(text_lines(path), word))
        return Source(word, lambda: readable(table_rows(path, column, id_column), word))
    if path.exists():
        raise InputError(f"cannot read {word!r}; texts come from {', '.join(SUFFIXES)} files")
    return Source(f"{word}:{split}", lambda: hub_rows(word, config, split, column, id_column), remote=True)


def readable(rows: Iterator[Row], where: str) -> Iterator[Row]:
    """The rows, with a file that is not UTF-8 told by its name."""
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 ({error.reason}); convert it first, for example with iconv") from None


def demo_texts() -> list[str]:
    """Two hundred short original texts that come with layerwise."""
    return (files("layerwise.inputs") / "demo.txt").read_text(encoding="utf-8").splitlines()


def from_list(given: Iterable[str]) -> Source:
    """Any collection of texts: a list, a generator, a column of a table."""
    if hasattr(given, "columns"):
        raise InputError("pass one column of the table, such as table['text'], not the table")
    texts = list(given)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"item {place} of the list is a {type(text).__name__}, not a text")
    if not texts:
        raise InputError("the list of texts is empty")
    return Source(f"a list of {len(texts)} texts", lambda: ((None, text) for text in texts))


def text_lines(path: Path) -> Iterator[Row]:
    """Every line that is not blank."""
    with path.open(encoding=ENCODING) as file:
        yield from ((None, line.rstrip("\n")) for line in file if line.strip())


def table_rows(path: Path, column: str, id_column: str | None) -> Iterator[Row]:
    readers = {".jsonl": jsonl_records, ".csv": csv_records, ".parquet": parquet_records}
    wanted = [column] + ([id_column] if id_column else [])
    return picked(readers[path.suffix](path, wanted), column, id_column, str(path))


def jsonl_records(path: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    with path.open(encoding=ENCODING) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(record, dict):
                raise InputError(f"{path}, line {number}: expected an object, got {type(record).__name__}")
            yield record


def csv_records(path: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(2**31 - 1)  # a long text is no mistake
    with path.open(encoding=ENCODING, newline="") as file:
        yield from csv.DictReader(file)


def parquet_records(path: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        names = [name for name in wanted if name in file.schema_arrow.names]
        if len(names) < len(wanted):
            yield dict.fromkeys(file.schema_arrow.names)  # lets `picked` say which columns there are
        for batch in file.iter_batches(columns=names):
            yield from batch.to_pylist()


def hub_rows(name: str, config: str | None, split: str, column: str, id_column: str | None) -> Iterator[Row]:
    if find_spec("datasets") is None:
        raise MissingExtra(f"{name!r} is no file here; to read it from the hub: pip install 'layerwise[data]'")
    from datasets import load_dataset

    try:
        records = load_dataset(name, config, split=split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"cannot open the hub data set {name!r} (config {config}, split {split}): {error}") from error
    return picked(records, column, id_column, name)


def picked(records: Iterable[dict[str, Any]], column: str, id_column: str | None, where: str) -> Iterator[Row]:
    """Ids and texts out of records; empty texts are passed over."""
    for record in records:
        for name in (column, id_column):
            if name is not None and name not in record:
                option = "--column" if name == column else "--id-column"
                has = ", ".join(map(str, record))
                raise InputError(f"{where} has no column {name!r}; it has {has}. Name another with {option}")
        text = record[column]
        if text is None or (isinstance(text, str) and not text.strip()):
            continue
        if not isinstance(text, str):
            raise InputError(f"column {column!r} of {where} holds {type(text).__name__}, not text")
        yield (str(record[id_column]) if id_column else None), text


def wikitext_paragraph(text: str) -> bool:
    """True for a paragraph of WikiText, false for its headings (` = Title = `) and blanks."""
    text = text.strip()
    return bool(text) and not (text.startswith("=") and text.endswith("="))


FILTERS: dict[str, Callable[[str], bool]] = {"wikitext": wikitext_paragraph}


def peek(source: Source, n: int) -> list[str]:
    """The first n texts, to estimate lengths by."""
    return [text for _, text in islice(iter(source.rows()), n)]

"""Texts from a list, a file (.txt, .jsonl, .csv, .parquet), standard input, a hub data set, or the bundled demo."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError, MissingExtra
from layerwise.core.hub import Answer, ask_hub, near_path, read_offline
from layerwise.core.option_records import options_record
from layerwise.core.options import takes
from layerwise.core.quiet import quiet_libraries
from layerwise.inputs.options import TextOptions
from layerwise.inputs.source import Source
from layerwise.inputs.tables import (
    ENCODING,
    missing_file_message,
    read_records,
    readable,
    require_text,
    require_text_file,
)
from layerwise.inputs.tokenizing import count_tokens
from layerwise.runs.summary import counted

Row = tuple[str | None, str | None]  # (id or None, text or None)
SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")
END_OF_SENTENCE = re.compile(r'(?<=[.!?])"?\s+(?=[A-Z"])')
DATA_HELP = "pass a list of texts, a .txt, .jsonl, .csv or .parquet file, - for standard input, a hub data set, or demo"


@takes(TextOptions)
def texts(options: TextOptions) -> Source:
    """Opens texts with options, for every function that takes data. They are filtered first and then cut.

    Returns:
        A Source that can be iterated again and again; each example has an `id` and a `text`.

    Raises:
        InputError: a file or column does not exist, or an option cannot be used.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> source = layerwise.texts(texts, limit=3)
        >>> [example.text for example in source] == texts[:3]
        True
    """
    data, tokenizer, fewest = options.data, options.tokenizer, options.min_tokens
    source = unfiltered(data, options.column, options.id_column, options.split, options.config)
    if options.only is not None:
        predicate = FILTERS[options.only]
        source = source.filter(lambda text: predicate(str(text)), f"only {options.only} paragraphs")
    if fewest:
        if tokenizer is None:
            raise InputError("min_tokens needs a tokenizer to count tokens: pass tokenizer=")
        source = source.filter(lambda text: count_tokens(tokenizer, str(text)) >= fewest, f">= {fewest} tokens")
    source = source if options.limit is None else source.first(options.limit)
    source = source if options.sample is None else source.sample(options.sample)
    in_memory = not isinstance(data, str | Path) or str(data) == "-"
    return replace(source, options={} if in_memory else options_record(options))


def unfiltered(data: Any, column: str, id_column: str | None, split: str, config: str | None) -> Source:
    """Opens a list, `demo`, `-` (standard input), a file, or else a hub data set, without filters."""
    if not isinstance(data, str | Path):
        return source_from_list(data)
    name, path = str(data), Path(data)
    if name == "demo":
        return Source("demo", lambda: ((None, line) for line in demo_texts()))
    if name == "-":
        lines = [line.rstrip("\n") for line in sys.stdin]
        return Source("standard input", lambda: (line_row(line) for line in lines))
    if path.is_file():
        require_text_file(path, SUFFIXES)
        if path.suffix == ".txt":
            return Source(name, lambda: text_lines(path))
        return Source(name, lambda: table_rows(path, column, id_column))
    if path.is_dir():
        raise InputError(folder_message(path))
    if path.suffix in SUFFIXES or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError(missing_file_message(name, DATA_HELP))
    hub = require_dataset(name)

    def rows() -> Iterator[Row]:
        return texts_in(dataset_records(name, config, split), column, id_column, name)

    return Source(f"{name}:{split}", rows if hub.reached else partial(read_offline, rows), remote=True)


def folder_message(folder: Path) -> str:
    """Says which file of a folder to pass, or that it contains no texts."""
    if files := sorted(found.name for found in folder.iterdir() if found.suffix in SUFFIXES):
        return f"{str(folder)!r} is a folder. Pass one of its files ({len(files)}), such as {folder / files[0]}"
    return f"{str(folder)!r} is a folder without texts: it contains no {', '.join(SUFFIXES)} file; {DATA_HELP}"


def demo_texts() -> list[str]:
    """The 200 short demo texts bundled with layerwise."""
    return (files("layerwise.inputs") / "demo.txt").read_text(encoding="utf-8").splitlines()


def demo_sentences() -> list[str]:
    """The demo texts and each of their sentences: about 800 short and long texts of many kinds."""
    return list(dict.fromkeys(part for text in demo_texts() for part in (text, *END_OF_SENTENCE.split(text))))


def source_from_list(data: Any) -> Source:
    """Texts from any iterable: a list, a generator, a column of a table."""
    if hasattr(data, "columns"):
        raise InputError("pass one column of the table, such as table['text'], not the table")
    if not isinstance(data, Iterable) or isinstance(data, Mapping | bytes):
        raise InputError(f"cannot read texts from a {type(data).__name__}; {DATA_HELP}")
    texts = data.to_pylist() if hasattr(data, "to_pylist") else list(data)  # an Arrow column
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"item {index} of the list is a {type(text).__name__}, not a string")
    texts = [str(text) for text in texts]  # numpy strings become str
    if not texts:
        raise InputError("the list of texts is empty")
    return Source(f"a list of {counted(len(texts), 'text')}", lambda: ((None, text) for text in texts))


def text_lines(path: Path) -> Iterator[Row]:
    """Every line; a blank line has no text."""
    with readable(path), path.open(encoding=ENCODING) as file:
        yield from (line_row(line) for line in file)


def line_row(line: str) -> Row:
    return None, line.rstrip("\n") if line.strip() else None


def table_rows(path: Path, column: str, id_column: str | None) -> Iterator[Row]:
    columns = [column] + ([id_column] if id_column else [])
    return texts_in(read_records(path, columns), column, id_column, str(path))


def require_dataset(name: str) -> Answer:
    """Asks the hub once for a data set; raises InputError if it cannot be read."""
    if find_spec("datasets") is None:
        raise MissingExtra(f"there is no file {name!r}; to read it as a hub data set: pip install 'layerwise[data]'")
    answer = ask_hub(name, kind="dataset")
    if answer.problem and (answer.reached or not dataset_in_cache(name)):
        near = near_path(name) or next(iter(get_close_matches(name, ["demo"], 1)), "")
        here = f"there is no file {name!r}" + (f"; did you mean {near}?" if near else ".")
        raise InputError(f"{here} As a hub data set: {answer.problem}")
    return answer


def dataset_in_cache(name: str) -> bool:
    """True if the data set was downloaded to this machine before."""
    import datasets

    return (Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___")).is_dir()


def dataset_records(name: str, config: str | None, split: str) -> Any:
    """The rows of a hub data set, streamed."""
    from datasets import load_dataset

    try:
        with quiet_libraries():
            return load_dataset(name, config, split=split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"cannot open the hub data set {name!r} (--config {config}, --split {split}): {reason}"
        ) from error


def texts_in(records: Iterable[dict[str, Any]], column: str, id_column: str | None, where: str) -> Iterator[Row]:
    """Extracts ids and texts from records; the text is None if blank or null."""
    for given_id, text, place in cells_in(records, column, id_column, where):
        if text is not None and not isinstance(text, str):
            kind = type(text).__name__
            raise InputError(f"{place}: column {column!r} contains {kind}, not text. Choose another with --column NAME")
        yield given_id, text if text and text.strip() else None


def cells_in(
    records: Iterable[dict[str, Any]], column: str, id_column: str | None, where: str
) -> Iterator[tuple[str | None, Any, str]]:
    """The id (or None), the cell and the place of each record; raises if a column is missing."""
    for row, record in enumerate(records, start=1):
        for name, flag in ((column, "--column"), (id_column, "--id-column")):
            if name is not None and name not in record:
                raise InputError(missing_column_message(where, name, flag, [*map(str, record)]))
        place = f"{where}, row {row}"
        yield None if id_column is None else row_id(record[id_column], place, id_column), record[column], place


def missing_column_message(where: str, name: str, flag: str, columns: Iterable[str]) -> str:
    near = get_close_matches(name, columns, 1)
    advice = f"Did you mean {flag} {near[0]}?" if near else f"Choose one with {flag} NAME"
    return f"{where} has no column {name!r}; it has {', '.join(columns)}. {advice}"


def row_id(value: Any, where: str, column: str) -> str:
    """The id of a row as a string; raises if it is missing or not valid text."""
    if value is None or value == "" or value != value:
        raise InputError(f"{where}: the id in column {column!r} is missing")
    return require_text(str(value), f"column {column!r}", where)


def wikitext_paragraph(text: str) -> bool:
    """True for a WikiText paragraph, False for headings (` = Title = `) and blank lines."""
    text = text.strip()
    return bool(text) and not (text.startswith("=") and text.endswith("="))


FILTERS: dict[str, Callable[[str], bool]] = {"wikitext": wikitext_paragraph}

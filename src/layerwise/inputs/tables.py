"""Reads tables from files without guessing types or changing values.

A .csv cell is always a string; .jsonl and .parquet cells keep their type. Columns of texts, numbers or labels are
converted explicitly; errors name the row.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from layerwise.core.checks import require_number
from layerwise.core.errors import InputError
from layerwise.core.hub import near_path
from layerwise.runs.summary import counted

Record = dict[str, Any]
ENCODING = "utf-8-sig"  # UTF-8, with or without a byte order mark
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
BYTES_LOOKED_AT = 4096
OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs"}  # that spreadsheets write


def read_table(path: str | Path) -> Any:
    """Reads a .parquet, .csv or .jsonl file as a data frame; cells are not converted, so columns have dtype object."""
    import pandas as pd

    if not str(path).strip():
        raise InputError(f"the name of the table is empty; pass a {', '.join(READERS)} file")
    path = Path(path)
    if not path.is_file():
        raise InputError(missing_file_message(str(path), f"pass a {', '.join(READERS)} file"))
    require_text_file(path, READERS)
    records = list(read_records(path))
    if not records:
        raise InputError(f"{path} contains no rows; write at least one")
    names = dict.fromkeys(name for record in records for name in record)
    frame = pd.DataFrame({name: pd.Series([r.get(name) for r in records], dtype=object) for name in names})
    frame.attrs["path"] = str(path)  # for messages
    return frame


def read_records(path: Path, columns: Sequence[str] = ()) -> Iterator[Record]:
    """The rows of a file, in order. Formats that can will read only the `columns` columns."""
    with readable(path):
        yield from READERS[path.suffix](path, columns)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns a decoding error into an InputError that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 ({error.reason}). Convert it: iconv -f ISO-8859-1 -t UTF-8 {path} > NEW{path.suffix}"
        ) from None


def require_text_file(path: Path, suffixes: Iterable[str]) -> None:
    """Raises for an unknown format, an empty file, a binary file, and text that is not UTF-8."""
    if path.suffix not in suffixes:
        raise InputError(f"cannot read {str(path)!r}: pass a {', '.join(suffixes)} file")
    with path.open("rb") as file:
        start = file.read(BYTES_LOOKED_AT)
    if not start:
        raise InputError(f"{path} is empty")
    if path.suffix != ".parquet" and start.startswith(UTF_16_MARKS):
        raise InputError(f"{path} is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 {path} > NEW{path.suffix}")
    if path.suffix != ".parquet" and b"\0" in start:
        raise InputError(f"{path} is a binary file, not a {path.suffix} file; pass the texts themselves")


def missing_file_message(name: str, advice: str) -> str:
    """Names the closest file, or says what to pass if none is close."""
    near = near_path(name)
    return f"there is no file {name!r}; " + (f"did you mean {near}?" if near else advice)


def jsonl_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    with path.open(encoding=ENCODING) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(record, dict):
                raise InputError(f"{path}, line {number}: expected an object, got {type(record).__name__}")
            yield record


def csv_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Rows as dictionaries keyed by the first line. A row with a different number of cells is refused.

    The strict reader raises if a quoted cell is not closed; otherwise it would swallow all following rows.
    """
    csv.field_size_limit(2**31 - 1)  # long texts are allowed
    with path.open(encoding=ENCODING, newline="") as file:
        reader = csv.reader(file, strict=True)
        names: list[str] | None = None
        first_line = 1
        try:
            for cells in reader:
                if names is None:
                    names = column_names(path, cells, columns)
                elif cells:
                    if len(cells) != len(names):
                        problem = (
                            f"{counted(len(cells), 'cell')}, but the first line has {counted(len(names), 'column')}"
                        )
                        raise InputError(
                            f"{path}, line {first_line}: {problem}; put a cell with commas in double quotes"
                        )
                    yield dict(zip(names, cells, strict=True))
                first_line = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"{path}, line {first_line}: a quoted cell that starts there is not closed ({error}, "
                f"detected in line {reader.line_num}); double any quotes inside the cell"
            ) from None
    if names is None:
        raise InputError(f"{path} is empty; a .csv file must start with a line of column names")


def column_names(path: Path, cells: list[str], wanted: Sequence[str]) -> list[str]:
    """The names in the first line; raises if it has other separators than commas, or two equal names."""
    found = [mark for mark in OTHER_SEPARATORS if len(cells) == 1 and mark in cells[0]]
    if found and cells[0] not in wanted:
        convert = f"pd.read_csv({str(path)!r}, sep={found[0]!r}, dtype=str, keep_default_na=False)"
        raise InputError(
            f"{path} has {OTHER_SEPARATORS[found[0]]} between its columns, not commas. Save it with commas, or convert "
            f"it in Python:\nimport pandas as pd; {convert}.to_csv('NEW.csv', index=False)"
        )
    if duplicate := next((name for name in cells if cells.count(name) > 1), None):
        raise InputError(f"{path} has two columns named {duplicate!r}; rename one of them")
    return cells


def parquet_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = [name for name in columns if name in file.schema_arrow.names]
            if len(names) < len(columns):
                yield dict.fromkeys(file.schema_arrow.names)  # lets the caller report which columns exist
            for batch in file.iter_batches(columns=names or None):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a complete Parquet file ({error}); write it again") from None


READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Record]]] = {
    ".parquet": parquet_records,
    ".csv": csv_records,
    ".jsonl": jsonl_records,
}


def is_missing(value: object) -> bool:
    """True for a missing value: null, or NaN in a data frame."""
    is_pandas_missing = type(value).__name__ in ("NAType", "NaTType")  # pandas types, checked without importing pandas
    return value is None or is_pandas_missing or (isinstance(value, float) and math.isnan(value))


def require_text(value: object, name: str, where: str) -> str:
    """A text that can be written as UTF-8."""
    if not isinstance(value, str):
        problem = "missing" if is_missing(value) else f"a {type(value).__name__} ({value!r})"
        raise InputError(f"{where}: {name} must be text, but is {problem}")
    return require_no_surrogates(str(value), f"{where}: {name}")


def require_no_surrogates(text: str, subject: str) -> str:
    """The text, if it contains no lone surrogate, which neither files nor tokenizers can represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        excerpt = text[max(0, error.start - 20) : error.start + 20]
        raise InputError(
            f"{subject} contains a lone surrogate ({text[error.start]!a}) at position {error.start}, near {excerpt!a}; "
            "correct the text, or remove it from the data"
        ) from None
    return text


def text_column(table: Any, name: str, where: str) -> list[str]:
    """The texts of a column; errors name the row, counted from 1."""
    return [require_text(value, name, f"{where}, row {row}") for row, value in enumerate(table[name], start=1)]


def number_column(table: Any, name: str, where: str, *, allow_missing: bool = False) -> list[Any]:
    """The numbers of a column, which may be stored as text; as int if all are whole."""
    cells = list(table[name])
    numbers = [
        require_number(name, value, f"{where}, row {row}", allow_missing=allow_missing)
        for row, value in enumerate(cells, start=1)
    ]
    all_integers = all(is_integer_text(cell) for cell in cells)
    return [int(cell) for cell in cells] if all_integers else numbers


def label_column(table: Any, name: str, where: str) -> list[Any]:
    """The labels of a column, text or numbers; missing or mixed labels raise an error that names the row."""
    return require_labels(list(table[name]), name, where)


def require_labels(cells: Sequence[Any], name: str, where: str) -> list[Any]:
    labels = [cell.item() if hasattr(cell, "item") else cell for cell in cells]
    for row, cell in enumerate(labels, start=1):
        if is_missing(cell) or not isinstance(cell, str | int | float):
            raise InputError(f"{where}, row {row}: {name} must be text or a number, but is {cell!r}")
        if isinstance(cell, str) != isinstance(labels[0], str):
            raise InputError(
                f"{where}, row {row}: {name} is {cell!r}, but {labels[0]!r} in row 1; use text or numbers, not both"
            )
    return labels


def is_integer_text(cell: object) -> bool:
    """True for a whole number, or text that is exactly the decimal form of one."""
    if isinstance(cell, str):
        return cell.removeprefix("-").isdecimal() and str(int(cell)) == cell
    return not isinstance(cell, bool | float) and hasattr(cell, "__index__")

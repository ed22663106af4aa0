"""Labels of examples: columns of the table that the examples came from, read row by row whatever the modality."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.core.checks import split_choices
from layerwise.core.errors import InputError
from layerwise.core.options import takes
from layerwise.inputs.modalities import open_source
from layerwise.inputs.options import LabelledOptions
from layerwise.inputs.source import Label, Source
from layerwise.inputs.tables import READERS, Record, read_records, require_labels
from layerwise.inputs.text import dataset_records, missing_column_message
from layerwise.inputs.words import CONLL, labels_words, word_source

FLAG = "--label"
CHANGED_ROWS = ("only", "min_tokens", "limit", "sample")  # after these, row k of a source is not row k of its file


def with_label_columns(source: Source, columns: Sequence[str]) -> Source:
    """The source with the labels in these columns of its own file or hub data set.

    The source must be opened whole: labels belong to rows, so a part of the examples is taken afterwards.
    """
    options = source.options
    if not options.get("data"):
        raise InputError(
            f"{source.name} is not a file: give its labels with source.with_labels({{{columns[0]!r}: ...}})"
        )
    if changed := [name for name in CHANGED_ROWS if options.get(name)]:
        raise InputError(f"labels are read row by row, so open {source.name} without {', '.join(changed)} first")
    cells = read_columns(str(options["data"]), columns, options.get("split") or "train", options.get("config"))
    return source.with_labels({name: require_labels(values, name, source.name) for name, values in cells.items()})


def read_columns(data: str, columns: Sequence[str], split: str, config: str | None) -> dict[str, list[Any]]:
    """The cells of these columns, in the order of the rows."""
    path = Path(data)
    if path.is_file():
        if path.suffix not in READERS:
            raise InputError(
                f"{data} has no columns, so no labels; pass a {', '.join(READERS)} file, or a {CONLL} file with a word "
                "and its labels per line"
            )
        records: Iterable[Record] = read_records(path, columns)
    else:
        records = with_class_names(dataset_records(data, config, split), columns)
    cells: dict[str, list[Any]] = {name: [] for name in columns}
    for record in records:
        for name in columns:
            if name not in record:
                raise InputError(missing_column_message(data, name, FLAG, [*map(str, record)]))
            cells[name].append(record[name])
    return cells


def with_class_names(records: Any, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of a hub data set, with the names of classes instead of their numbers if it has them."""
    features = getattr(records, "features", None) or {}
    names = {c: features[c].names for c in columns if hasattr(features.get(c), "names")}
    for record in records:
        yield record | {c: names[c][record[c]] for c in names if isinstance(record.get(c), int) and record[c] >= 0}


def class_name(label: Label) -> str:
    """A label as the name of a class: 3, 3.0 and "3" are one class, whichever file format they came from."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


@takes(LabelledOptions)
def labelled(options: LabelledOptions) -> Source:
    """Opens examples together with their labels, for `probe`.

    A .conll file, with a word and its labels per line and a blank line between sentences, has labels of words. Its
    columns are called by their number from 1, or by the names in a first line `# global.columns = FORM POS NER`. A
    .jsonl or .parquet table whose columns are lists of words and of labels has them as well.

    Returns:
        A Source whose examples have `labels`. For examples in memory use `Source.with_labels` instead.

    Raises:
        InputError: a file or column does not exist, or a label is missing.
        MissingExtra: a hub data set needs the package datasets.

    Example:
        >>> import pandas as pd
        >>> pd.DataFrame({"text": texts[:3], "topic": ["a", "b", "a"]}).to_csv(folder / "topics.csv", index=False)
        >>> source = layerwise.labelled(folder / "topics.csv", "topic")
        >>> [example.labels["topic"] for example in source]
        ['a', 'b', 'a']
    """
    source, columns = options.data, split_choices("label", options.label)
    if not isinstance(source, Source) and options.kind == "text" and labels_words(Path(source), options.column):
        source = word_source(Path(source), options.column, options.id_column, columns)
    else:
        if not isinstance(source, Source):
            how = {name: getattr(options, name) for name in ("column", "id_column", "split", "config")}
            source = open_source(source, options.kind, **how)
        source = with_label_columns(source, columns)
    opened = dict(source.options)
    if options.limit is not None:
        source, opened["limit"] = source.first(options.limit), options.limit
    if options.sample is not None:
        source, opened["sample"] = source.sample(options.sample), options.sample
    return replace(source, options=opened)

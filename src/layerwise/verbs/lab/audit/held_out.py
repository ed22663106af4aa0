"""Checks that labelled examples that a recipe may be chosen with are not among the examples that are scored."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import shorten

from layerwise.core.errors import InputError
from layerwise.core.formats import read_parquet
from layerwise.inputs.tables import read_table, text_column
from layerwise.verbs.eval.data_root import LocalTask

PAIR_COLUMNS = (("sentence1", "sentence2"), ("text1", "text2"), ("sent1", "sent2"))
LABELS_FOLDER = "labels"


def require_held_out(tasks: Iterable[LocalTask], root: Path) -> None:
    """Raises InputError if a text or pair of ROOT/labels/TASK.csv is among the scored examples of that task."""
    for task in tasks:
        path = root / LABELS_FOLDER / f"{task.name}.csv"
        if not path.exists():
            continue
        scored = set(scored_examples(task))
        labelled = labelled_examples(path)
        if shared := [row for row, example in labelled.items() if example in scored]:
            example = shorten(" | ".join(labelled[shared[0]]), 60)
            raise InputError(
                f"{len(shared)} of {len(labelled)} examples in {path} are also scored by {task.name} (row {shared[0]}: "
                f"{example!r}): a choice made with these labels would not be held out; remove them from one of the two"
            )


def labelled_examples(path: Path) -> Mapping[int, tuple[str, ...]]:
    """The text, or the pair of texts, of each row, counted from 1."""
    table = read_table(path)
    names = next((pair for pair in PAIR_COLUMNS if {*pair} <= {*table.columns}), ("text",))
    if not {*names} <= {*table.columns}:
        found = ", ".join(map(str, table.columns))
        raise InputError(f"{path} needs the column text, or sentence1 and sentence2; its columns are {found}")
    columns = [text_column(table, name, str(path)) for name in names]
    return {row: normalized(texts) for row, texts in enumerate(zip(*columns, strict=True), start=1)}


def scored_examples(task: LocalTask) -> Iterator[tuple[str, ...]]:
    """Every text that is scored, and every pair."""
    for text in task.texts("test"):
        yield normalized([text])
    for path in sorted(Path(task.folder).glob("*/test.parquet")):
        table = read_parquet(path.read_bytes(), str(path)).to_pandas()
        for pair in PAIR_COLUMNS:
            if {*pair} <= {*table.columns}:
                yield from (normalized(texts) for texts in table[list(pair)].itertuples(index=False))


def normalized(texts: Iterable[str]) -> tuple[str, ...]:
    """Texts without differences in white space, in an order that does not depend on which came first."""
    return tuple(sorted(" ".join(text.split()) for text in texts))

"""A data root: labelled data on disk in the layout that mteb's task classes read, written from plain tables.

ROOT/<Task>/task.json           type, subset, number of examples, and the cap, if any
ROOT/<Task>/README.md           the configurations, as on the hub
ROOT/<Task>/<config>/<split>.parquet
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.checks import require_choice, require_count
from layerwise.core.display import command_line
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder, safe_name, write_atomically, write_checked_json
from layerwise.core.formats import parse_record, read_parquet, require_shape
from layerwise.inputs.source import hash_id
from layerwise.inputs.tables import (
    is_integer_text,
    label_column,
    number_column,
    require_labels,
    require_text,
    text_column,
)
from layerwise.runs.ownership import claim
from layerwise.runs.summary import counted
from layerwise.runs.tasks import format_size

# The columns that each type needs in a plain table.
COLUMNS = {
    "Classification": ("text", "label"),
    "Clustering": ("sentences", "labels"),
    "PairClassification": ("sentence1", "sentence2", "labels"),
    "STS": ("sentence1", "sentence2", "score"),
    "Reranking": ("query", "positive", "negative"),
    "Retrieval": ("query", "positive", "negative"),
}
TASKS_WITH_OLD_PAIR_COLUMNS = (
    "SprintDuplicateQuestions",
    "TwitterSemEval2015",
    "TwitterURLCorpus",
)  # sent1, sent2 in mteb


@dataclass(frozen=True)
class LocalTask:
    """A labelled task in a data root, as `layerwise.lab.data` writes it.

    Args:
        name: name of the task.
        type: kind of task, as mteb names it.
        folder: where its files are.
        subset: mteb's subset.
        examples: number of test examples.
        of: number of test examples before the cap.
        revision: hash of the files' contents.
    """

    name: str
    type: str
    folder: str
    subset: str = "default"
    examples: int = 0
    of: int = 0  # number of examples before the cap
    revision: str = ""

    @property
    def size(self) -> str:
        """The number of examples, as text."""
        return format_size(self.examples, self.of)

    def texts(self, splits: str = "*") -> list[str]:
        """All texts in its files, in order, duplicates included.

        Args:
            splits: which splits, as a file name pattern: "*" for all, "test" or "train".
        """
        collected: list[str] = []
        for path in sorted(Path(self.folder).glob(f"*/{splits}.parquet")):
            if path.parent.name == "default" != self.subset:
                continue  # the same texts again, with a language column
            for column, values in read_parquet(path.read_bytes(), str(path)).to_pandas().items():
                if column in ("text", "sentence1", "sentence2", "sent1", "sent2"):
                    collected += list(values)
                elif column == "sentences":
                    collected += [text for set_ in values for text in set_]
        return collected


def write_task(
    root: Path,
    name: str,
    kind: str,
    test: pd.DataFrame,
    train: pd.DataFrame | None = None,
    *,
    subset: str = "default",
    cap: int | None = None,
) -> LocalTask:
    """Writes a task folder from plain tables; `cap` keeps at most that many test examples, by smallest hash."""
    if cap is not None:
        require_count("cap", cap)
    safe_name(name, "the name of a task")
    safe_name(subset, "the subset")
    require_columns(name, kind, test, train)
    test, train = (
        convert_columns(name, kind, test),
        None if train is None else convert_columns(f"{name}, train", kind, train),
    )
    if kind == "Classification" and train is not None:
        numbers = class_labels([*test.label, *train.label])
        test, train = (table.assign(label=[numbers[label] for label in table.label]) for table in (test, train))
    if kind == "Clustering" and "text" in test:
        test = pd.DataFrame({"sentences": [list(test.text)], "labels": [list(test.label)]})
    total = count_examples(kind, test)
    test = apply_cap(kind, test, cap)
    require_telling_labels(name, kind, test)
    tables = {(subset, "test"): test[list(COLUMNS[kind])]}
    if kind in ("Reranking", "Retrieval"):
        tables = retrieval_tables(test, top_ranked=kind == "Reranking")
    if name in TASKS_WITH_OLD_PAIR_COLUMNS:
        tables = {key: t.rename(columns={"sentence1": "sent1", "sentence2": "sent2"}) for key, t in tables.items()}
    if train is not None:
        tables[subset, "train"] = train[list(COLUMNS[kind])]
    if subset != "default":  # some task classes read one configuration per language, others one with a language column
        tables |= {("default", split): table.assign(lang=subset) for (_, split), table in tables.items()}
    folder = root / name
    claim(DiskFolder(folder), "data")
    for (config, split), table in tables.items():
        data = table.reset_index(drop=True).to_parquet(index=False)
        write_atomically(folder / config / f"{split}.parquet", data)
    write_atomically(folder / "README.md", readme_header(list(tables)).encode())
    task = LocalTask(name, kind, str(folder), subset, count_examples(kind, test), total, content_hash(folder))
    write_checked_json(folder / "task.json", asdict(task))
    return task


def content_hash(folder: Path) -> str:
    """A hash of the files that mteb will read."""
    digest = hashlib.blake2b(digest_size=8)
    for name in listed_tables(folder):
        data = DiskFolder(folder).read(f"{name}.parquet")
        if data is None:
            raise RunError(f"{folder / name}.parquet is missing; prepare the task again with `layerwise lab data`")
        digest.update(name.encode() + data)
    return digest.hexdigest()


def listed_tables(folder: Path) -> list[str]:
    """Configuration and split of each table, such as default/test, as listed in README.md for mteb."""
    text = (DiskFolder(folder).read("README.md") or b"").decode(errors="replace")
    entries = [
        (safe_name(config, "a configuration"), safe_name(split, "a split"))
        for config, split in re.findall(r"^    path: (.*)/(.*)\.parquet$", text, re.MULTILINE)
    ]
    if not entries or not text.startswith(readme_header(entries)):
        raise RunError(f"{folder / 'README.md'} was not written by `layerwise lab data`; prepare the task again")
    return [f"{config}/{split}" for config, split in entries]


def read_root(root: Path) -> dict[str, LocalTask]:
    """All tasks in a data root, by name."""
    tasks = [read_task(path.parent) for path in sorted(root.glob("*/task.json"))]
    by_name = {task.name: task for task in tasks}
    if not by_name:
        advice = command_line(["layerwise", "lab", "data", str(root), "NAME", "--type", "..."])
        raise InputError(f"{root} contains no prepared task; create one with `{advice}`")
    return by_name


def read_task(folder: Path) -> LocalTask:
    """Reads the task in a folder; raises if its record is damaged or its tables were changed."""
    where = str(folder / "task.json")
    record = parse_record(DiskFolder(folder).read("task.json") or b"", where)
    require_shape(record, {f.name: f.type for f in fields(LocalTask)}, where)
    if missing := [name for name in ("name", "type", "revision") if name not in record]:
        raise RunError(f"{where} has no {', '.join(missing)}; prepare the task again with `layerwise lab data`")
    values = {f.name: record[f.name] for f in fields(LocalTask) if f.name in record}
    task = replace(LocalTask(**values | {"folder": ""}), folder=str(folder.resolve()))
    for value, field in ((task.name, "name"), (task.subset, "subset"), (task.revision, "revision")):
        safe_name(value, f"{where}: {field}")
    if task.type not in COLUMNS:
        raise RunError(f"{where}: type {task.type!r} is not one of {', '.join(COLUMNS)}")
    if content_hash(folder) != task.revision:
        names = ", ".join(f"{name}.parquet" for name in listed_tables(folder))
        problem = f"the tables in {folder} ({names}) were changed after the task was prepared"
        raise RunError(f"{problem}; run `layerwise lab data` again")
    return task


def require_columns(name: str, kind: str, test: pd.DataFrame, train: pd.DataFrame | None) -> None:
    require_choice("type", kind, COLUMNS)
    required = ("text", "label") if kind == "Clustering" and "text" in test else COLUMNS[kind]
    for table in (test, *([] if train is None else [train])):
        if missing := [column for column in required if column not in table]:
            available = ", ".join(map(str, table.columns))
            raise InputError(
                f"{name}: a {kind} table needs {', '.join(required)}; missing {', '.join(missing)}, found {available}"
            )
    for column in ("positive", "negative") if kind in ("Reranking", "Retrieval") else ():
        if any(isinstance(value, str) or not hasattr(value, "__len__") for value in test[column]):
            raise InputError(
                f"{name}: {column} must contain lists of texts; use .jsonl or .parquet, which support lists"
            )
    if kind == "Classification" and train is None:
        raise InputError(f"{name}: Classification needs a train table as well")


def convert_columns(where: str, kind: str, table: pd.DataFrame) -> pd.DataFrame:
    """Converts columns to text or numbers; errors name the row."""
    columns: dict[str, Any] = {}
    for column in ("text", "label") if kind == "Clustering" and "text" in table else COLUMNS[kind]:
        if kind in ("STS", "PairClassification") and column in ("score", "labels"):
            columns[column] = number_column(table, column, where)
        elif column == "label":
            columns[column] = label_column(table, column, where)
        elif column in ("sentences", "positive", "negative", "labels"):
            check = require_labels if column == "labels" else require_texts
            cells = enumerate(table[column], start=1)
            columns[column] = [check(list(cell), column, f"{where}, row {row}") for row, cell in cells]
        else:
            columns[column] = text_column(table, column, where)
    for row, label in enumerate(columns["labels"] if kind == "PairClassification" else (), start=1):
        if label not in (0, 1):
            raise InputError(
                f"{where}, row {row}: labels must be 1 if the two texts mean the same, otherwise 0, not {label!r}"
            )
    return table.assign(**{name: pd.Series(cells, index=table.index) for name, cells in columns.items()})


def require_texts(cells: Sequence[Any], name: str, where: str) -> list[str]:
    return [require_text(cell, name, where) for cell in cells]


def class_labels(labels: Sequence[Any]) -> dict[Any, Any]:
    """The label of each class: whole numbers stored as text become numbers, and so do two classes.

    mteb's average precision for two classes needs numbers. All other classes keep their names.
    """
    names = sorted(set(labels), key=str)
    if all(is_integer_text(name) for name in names):
        return {name: int(name) for name in names}
    return {name: number if len(names) == 2 else name for number, name in enumerate(names)}


def count_examples(kind: str, test: pd.DataFrame) -> int:
    return sum(len(set_) for set_ in test.sentences) if kind == "Clustering" else len(test)


def apply_cap(kind: str, test: pd.DataFrame, cap: int | None) -> pd.DataFrame:
    """At most `cap` examples (per set, for clustering), chosen by smallest content hash, not by order."""
    if cap is None:
        return test
    if kind != "Clustering":
        return sample_by_hash(test, cap)
    sets = [sample_by_hash(pd.DataFrame({"s": list(r.sentences), "l": list(r.labels)}), cap) for r in test.itertuples()]
    return pd.DataFrame({"sentences": [list(s.s) for s in sets], "labels": [list(s.l) for s in sets]})


def require_telling_labels(name: str, kind: str, test: pd.DataFrame) -> None:
    """Raises if the labels cannot tell a good layer from a bad one: every layer would have the same score, or none."""
    advice = "so the task cannot tell layers apart; use more examples (a larger cap), or leave it out"
    for row, labels in enumerate(test.labels if kind == "Clustering" else (), start=1):
        if not 1 < len(set(labels)) < len(labels):
            found = f"{counted(len(set(labels)), 'label')} for {counted(len(labels), 'text')}"
            raise InputError(f"{name}: set {row} has {found}, {advice}")
    column = {"STS": "score", "PairClassification": "labels"}.get(kind)
    if column is not None and test[column].nunique() == 1:
        raise InputError(f"{name}: {column} is {test[column].iloc[0]:g} in all {len(test)} rows, {advice}")


def sample_by_hash(table: pd.DataFrame, cap: int) -> pd.DataFrame:
    keys = [
        hash_id(json.dumps([to_list_if_array(v) for v in row], default=str)) for row in table.itertuples(index=False)
    ]
    chosen = pd.Series(keys, index=table.index).sort_values(kind="stable").index[:cap]
    return table.loc[sorted(chosen)]


def to_list_if_array(value: Any) -> Any:
    return list(value) if hasattr(value, "__len__") and not isinstance(value, str) else value


def retrieval_tables(test: pd.DataFrame, *, top_ranked: bool) -> dict[tuple[str, str], pd.DataFrame]:
    """Queries, one corpus of all candidates, relevance judgements, and for reranking the candidates of each query."""
    ids: dict[str, str] = {}
    relevant, ranked = [], []
    for number, row in enumerate(test.itertuples(index=False)):
        query = f"q{number}"
        candidates = [(text, 1) for text in row.positive] + [(text, 0) for text in row.negative]
        for text, score in candidates:
            ids.setdefault(text, f"d{len(ids)}")
            if score:
                relevant.append((query, ids[text], score))
        ranked.append((query, list(dict.fromkeys(ids[text] for text, _ in candidates))))
    queries = pd.DataFrame({"_id": [f"q{n}" for n in range(len(test))], "text": list(test["query"])})
    corpus = pd.DataFrame({"_id": list(ids.values()), "title": "", "text": list(ids)})
    tables = {
        ("corpus", "test"): corpus,
        ("queries", "test"): queries,
        ("default", "test"): pd.DataFrame(relevant, columns=["query-id", "corpus-id", "score"]).drop_duplicates(),
    }
    if top_ranked:
        tables["top_ranked", "test"] = pd.DataFrame(ranked, columns=["query-id", "corpus-ids"])
    return tables


def readme_header(tables: list[tuple[str, str]]) -> str:
    """The YAML header in which the datasets library finds configurations and splits."""
    lines = ["---", "configs:"]
    for config in dict.fromkeys(config for config, _ in tables):
        lines += [f"- config_name: {config}", "  data_files:"]
        for split in (split for c, split in tables if c == config):
            lines += [f"  - split: {split}", f"    path: {config}/{split}.parquet"]
    return "\n".join([*lines, "---", ""])

"""LayerTable: a tidy table of layer scores, stored as Parquet next to the record of its run."""

import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from layerwise.core.checks import SHIPPED
from layerwise.core.errors import InputError, RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.formats import parquet_bytes, read_parquet
from layerwise.runs.identity import DataRef, ModelRef
from layerwise.runs.ownership import MARKER
from layerwise.runs.records import RUN
from layerwise.runs.result import OWN_TABLE, RUN_FILE, TABLE_FILE, read_result, write_result
from layerwise.runs.scores import COLUMNS, REQUIRED_COLUMNS, LayerScore, curves
from layerwise.runs.summary import shown, summary

if TYPE_CHECKING:
    import pandas as pd

MAX_VALUES_SHOWN = 5
MAX_LAYERS = 100_000  # no model has more layers; a larger number means damage, and memory grows with it


@dataclass(frozen=True)
class LayerTable:
    """Scores of layers as a tidy table: one row per layer, metric and setting.

    Printing it, or showing it in a notebook, gives one line per curve.

    Args:
        scores: the rows.
        run: how they were made: model, data, options, versions.
    """

    scores: tuple[LayerScore, ...]
    run: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[LayerScore]:
        return iter(self.scores)

    def where(self, **columns: Any) -> Self:
        """The rows whose columns have the given values.

        Args:
            columns: columns with a value or a list of values, such as metric="curvature", layer=[3, 4].
        """
        require_columns(columns)
        wanted = {name: value_list(value) for name, value in columns.items()}
        rows = tuple(s for s in self.scores if all(getattr(s, name) in values for name, values in wanted.items()))
        return type(self)(rows, self.run)

    def with_model_name(self, model: str) -> Self:
        """The same rows under another model name.

        Args:
            model: the new name.
        """
        return type(self)(tuple(replace(s, model=model) for s in self.scores), self.run)

    def curves(self) -> dict[tuple[str, ...], list[LayerScore]]:
        """Rows grouped by everything except the layer, ordered by depth: one line of a plot each."""
        return curves(self.scores)

    def main_curve(self, metric: str | None = None, where: Mapping[str, Any] | None = None) -> list[LayerScore]:
        """The curve that stands for a metric where only one can be used: one row per layer, ordered by layer.

        All its rows agree in every column except the layer and what was measured. If the table has several curves of
        the metric, these come first, in this order: outputs of blocks before points inside them; inputs without stress;
        readouts of a layer before the model's own output (norm "shipped"); curves over several layers before single
        layers; vectors without a linear map before mapped ones. Of those that are left, it is the first in the table.

        Args:
            metric: the metric or task; by default that of the first row.
            where: columns and the value that rows must have, such as {"norm": "normed"}; by default there are none. A
                column that the metric does not use ("-") is not compared.

        Raises:
            InputError: no row has this metric or these values.
        """
        metrics = list(dict.fromkeys(s.metric for s in self.scores))
        metric = metrics[0] if metric is None and metrics else metric
        if metric not in metrics:
            raise InputError(f"no metric {metric!r} in this run; choose from {', '.join(metrics) or 'none'}")
        require_columns(where or ())
        rows = [s for s in self.scores if s.metric == metric]
        for name, value in (where or {}).items():
            available = list(dict.fromkeys(getattr(s, name) for s in rows))
            rows = [s for s in rows if getattr(s, name) in (value, "-")]
            if not rows:
                raise InputError(f"{metric} has no {name} {value!r}; choose from {', '.join(map(str, available))}")
        found: dict[tuple[Any, ...], list[LayerScore]] = {}
        for s in rows:
            found.setdefault((s.norm, *s.setting), []).append(s)
        curve = min(found.values(), key=distance_from_main)
        return sorted(curve, key=lambda s: s.layer)

    def main_curves(self) -> dict[str, list[LayerScore]]:
        """The main curve of each metric, see `main_curve`."""
        by_metric: dict[str, list[LayerScore]] = {}
        for s in self.scores:
            by_metric.setdefault(s.metric, []).append(s)
        return {metric: LayerTable(tuple(rows)).main_curve() for metric, rows in by_metric.items()}

    def outputs(self) -> dict[str, LayerScore]:
        """The row of the model's usual output for each metric.

        It is the model as shipped, else the last layer of the main curve, after the final norm if there is such a row.
        """
        found = {metric: curve[-1] for metric, curve in self.main_curves().items()}
        ends = {metric: (s.layer, s.setting) for metric, s in found.items()}
        for s in self.scores:
            is_normed = s.norm == "normed" and found[s.metric].norm != SHIPPED
            is_normed = is_normed and (s.layer, s.setting) == ends[s.metric]
            if is_normed or (s.norm == SHIPPED and s.transform == "none" and not s.condition):
                found[s.metric] = s
        return found

    @property
    def kind(self) -> str:
        """ "scan", "eval", "probe" or "stress"; "joined" for tables of several runs; "" if not recorded."""
        if any(s.condition for s in self.scores):
            return "stress"
        return str(self.run.get("kind", ""))

    @property
    def model(self) -> ModelRef | None:
        """The model of all rows; None if it was not recorded, or if there are several."""
        models = self.models
        return models[0] if models and all(models[0].same_as(other) for other in models[1:]) else None

    @property
    def models(self) -> list[ModelRef]:
        """The recorded models of the runs in this table, one per run."""
        runs = self.run.get("runs") or [self.run]
        return [ModelRef.from_record(run["model"], RUN_FILE) for run in runs if run.get("model")]

    @property
    def data(self) -> DataRef | None:
        """The recorded data of a scan."""
        return DataRef.from_record(self.run["data"], RUN_FILE) if self.run.get("data") else None

    @classmethod
    def join(cls, tables: Iterable["LayerTable"]) -> Self:
        """The rows of several tables in one.

        Args:
            tables: the tables, in order.
        """
        tables = list(tables)
        run = {"kind": "joined", "runs": [dict(table.run) for table in tables]}
        return cls(tuple(s for table in tables for s in table.scores), run)

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a data frame, with one column per field of `LayerScore`."""
        import pandas as pd

        return pd.DataFrame({name: [getattr(s, name) for s in self.scores] for name in COLUMNS})

    def to_json(self) -> str:
        """The rows and the run as one JSON object; NaN becomes null."""
        rows = [{k: None if v != v else v for k, v in asdict(s).items()} for s in self.scores]
        return json.dumps({"run": dict(self.run), "scores": rows}, ensure_ascii=False, allow_nan=False)

    def save(self, folder: str | Path | Folder) -> None:
        """Writes table.parquet and run.json into a folder, each complete or not at all; run.json comes last.

        An earlier table of layerwise is replaced. Files of these names that layerwise did not write are left alone: it
        raises RunError.

        Args:
            folder: path or url of the folder.
        """
        target = open_folder(folder) if isinstance(folder, str | Path) else folder
        require_no_other_table(target)
        write_result(target, parquet_bytes(arrow_table(self.scores)), lambda own: RUN.dump({**self.run, **own}))

    @classmethod
    def load(cls, folder: str | Path | Folder, where: Mapping[str, Any] | None = None) -> Self:
        """Reads a table that `save` or a run wrote.

        Args:
            folder: path or url of the folder.
            where: columns and the value, or list of values, that rows must have, such as {"metric": "curvature"}.
                By default all rows are read. In the table of a large campaign, this is much faster than `where()`.
        """
        rows, run, path = read_rows(folder, where)
        return cls(parse_scores(rows, path), run)

    def require_model(self) -> ModelRef:
        """The model of this table; raises RunError if it was not recorded."""
        if len(names := {ref.name for ref in self.models}) > 1:
            shown = ", ".join(sorted(names)[:3])
            raise RunError(f"this table contains runs of {len(names)} models ({shown}); pass the run of a single model")
        if (model := self.model) is None or not model.fingerprint:
            raise RunError(f"the run's record ({RUN_FILE}) does not say which model was used; repeat the run")
        return model

    def __repr__(self) -> str:
        return summary(self.scores, self.run) if self.scores else "LayerTable without scores"

    def _repr_html_(self) -> str:
        made = shown(self.scores, self.run)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in made.columns)
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in made.lines]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        caption = "<br>".join(html.escape(line) for line in made.caption if line)
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{body}</table>"


def distance_from_main(curve: list[LayerScore]) -> tuple[bool, ...]:
    """Sorts the curves of one metric, the plainest first: see `LayerTable.main_curve`."""
    first = curve[0]
    is_single = len({s.layer for s in curve}) == 1
    return bool(first.point), bool(first.condition), first.norm == SHIPPED, is_single, first.transform != "none"


def require_columns(names: Iterable[str]) -> None:
    """Raises InputError if one of them is not a column."""
    if unknown := set(names) - set(COLUMNS):
        raise InputError(f"unknown column {', '.join(sorted(unknown))}; the columns are {', '.join(COLUMNS)}")


def value_list(value: Any) -> list[Any]:
    """One value as a list, a list as it is. NumPy's numbers and arrays become those of Python."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str | int | float):
        return [value]
    if not isinstance(value, Iterable):
        raise InputError(f"rows can be chosen by a text, a number or a list of them, not by {value!r}")
    return list(value)


def parse_conditions(conditions: Iterable[str]) -> dict[str, list[Any]]:
    """Conditions such as metric=curvature as columns with lists of values; raises InputError."""
    types = get_type_hints(LayerScore)
    found: dict[str, list[Any]] = {}
    for condition in conditions:
        name, separator, value = condition.partition("=")
        if not separator:
            raise InputError(f"{condition!r} is not a condition; write COLUMN=VALUE, such as metric=prompt_entropy")
        require_columns([name])
        if types[name] is bool and value not in ("True", "False"):
            raise InputError(f"{name} is True or False, not {value}")
        try:
            found.setdefault(name, []).append(value == "True" if types[name] is bool else types[name](value))
        except ValueError:
            raise InputError(f"{name} is a number, not {value!r}") from None
    return found


def require_no_other_table(folder: Folder) -> None:
    """Raises if the folder is not a run folder but contains a table.parquet or run.json that is not layerwise's."""
    if folder.read(MARKER) is not None:
        return
    table = folder.read(TABLE_FILE)
    if not is_table(table) if table is not None else folder.read(RUN_FILE) is not None:
        name = TABLE_FILE if table is not None else RUN_FILE
        raise RunError(f"{name} in {folder} was not written by layerwise; move it, or choose another folder")


def is_table(data: bytes) -> bool:
    """True if the bytes are a table of layer scores."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return {"model", "layer", "metric", "value"} <= {*pq.read_schema(pa.BufferReader(data)).names}
    except pa.ArrowException:
        return False


def arrow_types() -> dict[str, Any]:
    """The type of each column on disk."""
    import pyarrow as pa

    types: dict[Any, Any] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    return {f.name: types[f.type] for f in fields(LayerScore)}


def arrow_table(scores: Iterable[LayerScore]) -> Any:
    """The rows as an Arrow table, with one column per field of `LayerScore`."""
    import pyarrow as pa

    rows = list(scores)
    columns = {name: [getattr(s, name) for s in rows] for name in COLUMNS}
    return pa.table(columns, schema=pa.schema(list(arrow_types().items())))


def read_rows(folder: str | Path | Folder, where: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any], str]:
    """The rows of a saved table as an Arrow table, the record of the run, and the file name for messages."""
    opened = open_folder(folder) if isinstance(folder, str | Path) else folder
    table, run, _ = read_result(opened)
    run.pop(OWN_TABLE, None)
    path = f"{opened}/{TABLE_FILE}"
    rows = read_parquet(table, path)
    return (matching_rows(arrow_columns(rows, path), where) if where else rows), run, path


def arrow_columns(table: Any, where: str) -> Any:
    """An Arrow table with exactly the columns of a table of scores; raises RunError with the problem.

    A column that has a default may be missing. An unknown column is refused, since rows may be indistinguishable
    without it.
    """
    import pyarrow as pa

    types, advice = arrow_types(), "repeat the run in another folder"
    if missing := [name for name in REQUIRED_COLUMNS if name not in table.column_names]:
        raise RunError(f"{where} has no column {', '.join(missing)}; {advice}")
    if unknown := [name for name in table.column_names if name not in types]:
        raise RunError(
            f"{where} has a column {', '.join(unknown)} unknown to this version of layerwise; "
            "update layerwise, or remove the column"
        )
    columns = {}
    for field_ in fields(LayerScore):
        name = field_.name
        if name not in table.column_names:
            columns[name] = pa.chunked_array([pa.array([field_.default] * len(table), types[name])])
            continue
        is_string = pa.types.is_string(types[name])
        try:
            if is_string != (not pa.types.is_primitive(table[name].type)):  # "7" is not a number
                raise ValueError(f"it contains {table[name].type}")
            columns[name] = table[name].cast(types[name])
        except (pa.ArrowException, ValueError) as error:
            raise RunError(f"{where}: column {name} does not hold {types[name]} ({error}); {advice}") from None
        if pa.types.is_floating(types[name]):  # pandas writes NaN as null
            columns[name] = columns[name].fill_null(math.nan)
        if columns[name].null_count:
            raise RunError(f"{where}: row {columns[name].is_null().index(True).as_py()} has no {name}; {advice}")
    if not len(table):
        raise RunError(f"{where} holds no rows; {advice}")
    return pa.table(columns, schema=pa.schema(list(types.items())))


def matching_rows(table: Any, where: Mapping[str, Any]) -> Any:
    """The rows of an Arrow table whose columns have the given values; raises InputError if there are none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    require_columns(where)
    for name, value in where.items():
        values = value_list(value)
        try:
            found = table.filter(pc.is_in(table[name], pa.array(values, table[name].type)))
        except pa.ArrowException as error:
            raise InputError(f"{name} cannot be {values!r}: {error}") from None
        if not len(found):
            present = sorted(pc.unique(table[name]).to_pylist())
            shown = ", ".join(map(str, present[:MAX_VALUES_SHOWN])) + (
                ", ..." if len(present) > MAX_VALUES_SHOWN else ""
            )
            raise InputError(f"no row has {name} {' or '.join(map(str, values))}; there are {shown}")
        table = found
    return table


def parse_scores(table: Any, where: str) -> tuple[LayerScore, ...]:
    """The rows of an Arrow table; raises RunError with the problem."""
    columns = [python_values(column) for column in arrow_columns(table, where).columns]
    scores = tuple(map(LayerScore, *columns))
    for row, s in enumerate(scores):
        if not (0 <= s.layer <= MAX_LAYERS and 0 <= s.depth <= 1 and (s.layer > 0) == (s.depth > 0)):
            raise RunError(
                f"{where}: row {row} is of layer {s.layer} at depth {s.depth}, which no model has; "
                "repeat the run in another folder"
            )
    return scores


def python_values(column: Any) -> list[Any]:
    """The values of an Arrow column. Equal strings are one object: in a large table, they would fill memory."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_string(column.type):
        return list(column.to_numpy().tolist())
    encoded = column.combine_chunks().dictionary_encode()
    return list(np.array(encoded.dictionary.to_pylist(), dtype=object)[encoded.indices.to_numpy()].tolist())

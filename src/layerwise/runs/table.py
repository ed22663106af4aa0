"""LayerTable: a tidy table of layer scores, stored as Parquet next to the record of its run."""

import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import Folder, open_folder
from layerwise.core.formats import parquet_bytes, read_parquet, require_checksum
from layerwise.core.templates import INPUT
from layerwise.runs.claims import MARKER
from layerwise.runs.identity import DataRef, ModelRef
from layerwise.runs.records import RUN, parse_run
from layerwise.runs.scores import COLUMNS, REQUIRED_COLUMNS, LayerScore, curves
from layerwise.runs.summary import shown, summary

if TYPE_CHECKING:
    import pandas as pd

TABLE_FILE, RUN_FILE = "table.parquet", RUN.file
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
            columns: columns and their values, such as metric="curvature", norm="raw".
        """
        if unknown := set(columns) - set(COLUMNS):
            raise InputError(f"unknown column {', '.join(sorted(unknown))}; the columns are {', '.join(COLUMNS)}")
        rows = tuple(s for s in self.scores if all(getattr(s, name) == value for name, value in columns.items()))
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
        target.write(TABLE_FILE, self._parquet())
        target.write(RUN_FILE, RUN.dump(self.run))

    def _parquet(self) -> bytes:
        import pyarrow as pa

        columns = {name: [getattr(s, name) for s in self.scores] for name in COLUMNS}
        return parquet_bytes(pa.table(columns, schema=pa.schema(list(arrow_types().items()))))

    @classmethod
    def load(cls, folder: str | Path | Folder) -> Self:
        """Reads a table that `save` or a run wrote.

        Args:
            folder: path or url of the folder.
        """
        opened = open_folder(folder) if isinstance(folder, str | Path) else folder
        table, record = (opened.read(name) for name in (TABLE_FILE, RUN_FILE))
        if table is None:
            raise RunError(
                f"{folder} contains no finished run (no {TABLE_FILE}); run `layerwise scan ... --out {folder}`"
            )
        where = f"{opened}/{TABLE_FILE}"
        require_checksum(table, where, allow_missing=True)
        run = parse_run(record or b"", f"{opened}/{RUN_FILE}")
        return cls(parse_scores(read_parquet(table, where), where), run)

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


def with_norm_column(table: Any) -> Any:
    """An Arrow table of scores or per-prompt values, with the old column `readout` renamed to `norm`."""
    names = list(table.column_names)
    if "norm" in names or "readout" not in names:  # if both are present, `readout` is an unknown column
        return table
    return table.rename_columns(["norm" if name == "readout" else name for name in names])


def with_template_column(table: Any) -> Any:
    """An Arrow table of scores, with the old column `prompt` as the template that it stands for."""
    import pyarrow as pa

    names = list(table.column_names)
    if "template" in names or "prompt" not in names:  # if both are present, `prompt` is an unknown column
        return table
    prompts = table["prompt"]
    if not pa.types.is_primitive(prompts.type):  # numbers are refused later, by name
        prompts = pa.array([f"{prompt}{INPUT}" if prompt else prompt for prompt in prompts.to_pylist()], pa.string())
    return table.set_column(names.index("prompt"), "template", prompts)


def parse_scores(table: Any, where: str) -> tuple[LayerScore, ...]:
    """The rows of an Arrow table; raises RunError with the problem.

    Tables of earlier versions lack the newest columns, and call `norm` `readout` and `template` `prompt`. An unknown
    column is refused, since rows may be indistinguishable without it.
    """
    import pyarrow as pa

    table = with_template_column(with_norm_column(table))
    types, advice = arrow_types(), "repeat the run in another folder"
    if missing := [name for name in REQUIRED_COLUMNS if name not in table.column_names]:
        raise RunError(f"{where} has no column {', '.join(missing)}; {advice}")
    if unknown := [name for name in table.column_names if name not in types]:
        raise RunError(
            f"{where} has a column {', '.join(unknown)} unknown to this version of layerwise; "
            "update layerwise, or remove the column"
        )
    columns = {}
    for name in table.column_names:
        is_string = pa.types.is_string(types[name])
        try:
            if is_string != (not pa.types.is_primitive(table[name].type)):  # "7" is not a number
                raise ValueError(f"it contains {table[name].type}")
            columns[name] = table[name].cast(types[name]).to_pylist()
        except (pa.ArrowException, ValueError) as error:
            raise RunError(f"{where}: column {name} does not hold {types[name]} ({error}); {advice}") from None
        if pa.types.is_floating(types[name]):  # pandas writes NaN as null
            columns[name] = [math.nan if value is None else value for value in columns[name]]
        if None in columns[name]:
            raise RunError(f"{where}: row {columns[name].index(None)} has no {name}; {advice}")
    defaults = {f.name: [f.default] * len(table) for f in fields(LayerScore) if f.name not in columns}
    ordered = [(defaults | columns)[name] for name in COLUMNS]
    scores = tuple(LayerScore(*row) for row in zip(*ordered, strict=True))
    if not scores:
        raise RunError(f"{where} holds no rows; {advice}")
    for row, s in enumerate(scores):
        if not (0 <= s.layer <= MAX_LAYERS and 0 <= s.depth <= 1):
            raise RunError(f"{where}: row {row} is of layer {s.layer} at depth {s.depth}, which no model has; {advice}")
    return scores

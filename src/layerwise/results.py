"""Results: one row a layer and metric (LayerScore), many of them (LayerTable), on disk as Parquet and run.json."""

import html
import json
import math
import platform
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, Self

from layerwise.display import printable, redacted
from layerwise.errors import InputError, RunError
from layerwise.files import (
    Folder,
    open_folder,
    parquet_bytes,
    parse_record,
    read_parquet,
    record_bytes,
    require_checksum,
    require_shape,
)
from layerwise.folders import MARKER

TABLE_FILE, RUN_FILE = "table.parquet", "run.json"
STEP = re.compile(r"(?:step|checkpoint)[-_]?(\d+)$")
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class LayerScore:
    """One number of one layer, and everything that decides what it means."""

    model: str
    layer: int
    depth: float  # layer / number of blocks
    readout: str  # raw or normed
    tokens: str  # which tokens counted
    pooling: str  # how tokens became a row; "-" where the metric looks at tokens
    rows: str  # what was done to the rows
    metric: str
    value: float
    n: int  # examples behind the value
    skipped: int = 0  # examples for which it is undefined
    ci_low: float = math.nan
    ci_high: float = math.nan
    revision: str = "main"
    data: str = ""
    dtype: str = "float32"
    condition: str = ""  # what was done to the inputs, such as repeat_one; "" where nothing was
    level: float = math.nan  # how far that went
    transform: str = "none"  # the linear map that was put on pooled rows
    missing: int = 0  # examples of the data that could not be computed and were left out of the run
    note: str = ""  # how exact the value is, where memory did not allow exact sums
    normalize: bool = False  # vectors of length 1
    prompt: str = ""  # put before every text
    fit: str = ""  # what the linear map was fitted on: "task", or a hash of the texts; "" without a map
    max_length: int = 0  # longest input in tokens, where rows of a table may differ in it; else 0

    @property
    def recipe(self) -> tuple[Any, ...]:
        """How a text became a vector, apart from the layer."""
        return tuple(getattr(self, name) for name in RECIPE)

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes two rows of one model the same measurement: everything but the numbers that were measured."""
        level = None if math.isnan(self.level) else self.level  # nan is not equal to itself
        return (self.metric, self.rows, self.condition, level, self.dtype, self.layer, *self.recipe)


COLUMNS = tuple(f.name for f in fields(LayerScore))
RECIPE = ("readout", "tokens", "pooling", "transform", "normalize", "prompt", "fit", "max_length")
NEEDED = tuple(f.name for f in fields(LayerScore) if f.default is MISSING)
DEEPEST = 100_000  # no model has more layers; a larger number is damage, and takes memory by the layer
NUMBER = (int, float)
RUN_SHAPE: dict[str, Any] = {  # of run.json, as far as verbs rely on it
    "kind": str,
    "model": {
        "name": str, "revision": str, "fingerprint": str, "family": str, "dtype": str, "device": str,
        "depth": int, "width": int,
    },
    "data": {"name": str, "fingerprint": str, "prompts": int, "tokens": int, "cut": int, "missing": list},
    "plan": {"max_length": int, "metrics": list, "stress": {"kind": str, "level": NUMBER}},
    "environment": dict,
    "tasks": dict,
    "failed": dict,
    "max_length": (int, NoneType),
    "seconds": NUMBER,
}


@dataclass(frozen=True)
class LayerTable:
    """Scores of layers, tidy: one row a layer, metric and setting; `run` says how they were made."""

    scores: tuple[LayerScore, ...]
    run: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[LayerScore]:
        return iter(self.scores)

    def where(self, **wanted: Any) -> Self:
        """The rows whose columns have these values: table.where(metric="curvature", readout="raw")."""
        if unknown := set(wanted) - set(COLUMNS):
            raise InputError(f"no column {', '.join(sorted(unknown))}; a row has {', '.join(COLUMNS)}")
        kept = tuple(s for s in self.scores if all(getattr(s, name) == value for name, value in wanted.items()))
        return type(self)(kept, self.run)

    def named(self, model: str) -> Self:
        """The same rows under another name of the model."""
        return type(self)(tuple(replace(s, model=model) for s in self.scores), self.run)

    def curves(self) -> dict[tuple[str, ...], list[LayerScore]]:
        """Rows by everything but the layer, each in the order of depth: what a plot draws as one line."""
        lines: dict[tuple[str, ...], list[LayerScore]] = {}
        several = {
            model: [name for name in ("fit", "max_length") if len({getattr(s, name) for s in rows}) > 1]
            for model, rows in self._by_model().items()
        }
        for s in sorted(self.scores, key=lambda s: s.layer):
            name = f"{s.condition} {s.level:g}" if s.condition else ""
            made = made_words(s, several[s.model])
            setting = (s.model, name, s.metric, s.rows, s.tokens, s.pooling, made, s.readout)
            lines.setdefault(setting, []).append(s)
        return lines

    def _by_model(self) -> dict[str, list[LayerScore]]:
        found: dict[str, list[LayerScore]] = {}
        for s in self.scores:
            found.setdefault(s.model, []).append(s)
        return found

    @classmethod
    def join(cls, tables: Iterable["LayerTable"]) -> Self:
        """The rows of several tables under each other; the runs are listed."""
        tables = list(tables)
        run = {"kind": "joined", "runs": [dict(table.run) for table in tables]}
        return cls(tuple(s for table in tables for s in table.scores), run)

    def to_pandas(self) -> Any:
        import pandas as pd

        return pd.DataFrame([asdict(s) for s in self.scores], columns=list(COLUMNS))

    def to_json(self) -> str:
        """The rows and the run as one JSON object; undefined numbers are null."""
        rows = [{k: None if v != v else v for k, v in asdict(s).items()} for s in self.scores]
        return json.dumps({"run": dict(self.run), "scores": rows}, ensure_ascii=False, allow_nan=False)

    def save(self, folder: str | Path | Folder) -> None:
        """Writes table.parquet and run.json into the folder, each whole or not at all; run.json comes last.

        An earlier table of layerwise is replaced; files of these names that are not layerwise's are refused.
        """
        place = open_folder(folder) if isinstance(folder, str | Path) else folder
        require_no_other_table(place)
        place.write(TABLE_FILE, self._parquet())
        place.write(RUN_FILE, record_bytes(self.run))

    def _parquet(self) -> bytes:
        import pyarrow as pa

        columns = {name: [getattr(s, name) for s in self.scores] for name in COLUMNS}
        return parquet_bytes(pa.table(columns, schema=pa.schema(list(arrow_types().items()))))

    @classmethod
    def load(cls, folder: str | Path | Folder) -> Self:
        """Reads what `save` wrote."""
        place = open_folder(folder) if isinstance(folder, str | Path) else folder
        table, record = (place.read(name) for name in (TABLE_FILE, RUN_FILE))
        if table is None:
            raise RunError(f"{folder} holds no finished run (no {TABLE_FILE}); run `layerwise scan ... --out {folder}`")
        where = f"{place}/{TABLE_FILE}"
        require_checksum(table, where, older=True)
        run = parse_record(record or b"", f"{place}/{RUN_FILE}")
        require_run(run, f"{place}/{RUN_FILE}")
        return cls(parse_scores(read_parquet(table, where), where), run)

    def recorded(self, *path: str) -> Any:
        """A value of the run's record, such as recorded("model", "name"); raises RunError where it has none."""
        found: Any = self.run
        for name in path:
            if not isinstance(found, Mapping) or name not in found:
                what = ".".join(path)
                raise RunError(f"the run's record ({RUN_FILE}) has no {what}; run it again, or name the model")
            found = found[name]
        return found

    def __repr__(self) -> str:
        return f"LayerTable of {len(self.scores)} scores\n{summary(self.scores)}"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in SUMMARY_COLUMNS)
        lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in summary_lines(self.scores)]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><caption>{len(self.scores)} scores</caption><tr>{head}</tr>{body}</table>"


def require_no_other_table(place: Folder) -> None:
    """Raises where the folder is not marked as a run and holds a table.parquet or run.json that is not ours."""
    if place.read(MARKER) is not None:
        return
    table = place.read(TABLE_FILE)
    if not is_table(table) if table is not None else place.read(RUN_FILE) is not None:
        name = TABLE_FILE if table is not None else RUN_FILE
        raise RunError(f"{name} in {place} was not written by layerwise; move it away, or name another folder")


def is_table(data: bytes) -> bool:
    """True if these are the bytes of a table of layer scores."""
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


def parse_scores(table: Any, where: str) -> tuple[LayerScore, ...]:
    """The rows of an Arrow table; raises RunError naming what is wrong with it.

    Tables of earlier versions lack the newest columns. A column that this version does not know is refused: it may
    tell rows apart that would look the same without it.
    """
    import pyarrow as pa

    types, again = arrow_types(), "run it again into another folder"
    if lacking := [name for name in NEEDED if name not in table.column_names]:
        raise RunError(f"{where} has no column {', '.join(lacking)}; {again}")
    if unknown := [name for name in table.column_names if name not in types]:
        raise RunError(
            f"{where} has a column {', '.join(unknown)} that this version of layerwise does not know; "
            "update layerwise, or take the column out"
        )
    columns = {}
    for name in table.column_names:
        words = pa.types.is_string(types[name])
        try:
            if words != (not pa.types.is_primitive(table[name].type)):  # "7" is no number
                raise ValueError(f"it holds {table[name].type}")
            columns[name] = table[name].cast(types[name]).to_pylist()
        except (pa.ArrowException, ValueError) as error:
            raise RunError(f"{where}: column {name} does not hold {types[name]} ({error}); {again}") from None
        if pa.types.is_floating(types[name]):  # pandas writes nan as empty
            columns[name] = [math.nan if value is None else value for value in columns[name]]
        if None in columns[name]:
            raise RunError(f"{where}: row {columns[name].index(None)} has no {name}; {again}")
    scores = tuple(LayerScore(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
    if not scores:
        raise RunError(f"{where} holds no rows; {again}")
    for row, s in enumerate(scores):
        if not (0 <= s.layer <= DEEPEST and 0 <= s.depth <= 1):
            raise RunError(f"{where}: row {row} is of layer {s.layer} at depth {s.depth}, which no model has; {again}")
    return scores


def require_run(run: Mapping[str, Any], where: str) -> None:
    """Raises RunError where run.json holds something else than a run's record, or the records of joined runs."""
    require_shape(run, RUN_SHAPE, where)
    require_shape(run, {"runs": [dict]}, where)
    for number, part in enumerate(run.get("runs", [])):
        require_shape(part, RUN_SHAPE, f"{where}: runs[{number}]")


def made_words(s: LayerScore, several: Sequence[str]) -> str:
    """How vectors were made beyond readout, tokens and pooling, in words; fit and length where they tell rows apart."""
    words = ["" if s.transform == "none" else s.transform, "normalized" if s.normalize else ""]
    words.append(f"prompt {s.prompt!r}" if s.prompt else "")
    words += [f"{name} {getattr(s, name)}" for name in several]
    return ", ".join(filter(None, words))


def environment() -> dict[str, str]:
    """Versions and machine, for the record of a run; the command, where the command line made it."""
    names = ("layerwise", "torch", "transformers", "numpy")
    found = {name: version(name) for name in names}
    script = Path(sys.argv[0])
    if (script.parent.name if script.stem == "__main__" else script.stem) == "layerwise":  # also python -m layerwise
        found["command"] = shlex.join(["layerwise", *map(redacted, sys.argv[1:])])
    return {**found, "python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}


def model_labels(tables: Sequence[LayerTable]) -> list[str]:
    """A short name for the model of each table: as few last parts of its name as tell it from the others.

    A checkpoint is named with the folder that holds it; a revision is told where only that differs.
    """
    named = [next(((s.model, s.revision) for s in table.scores), ("no model", "")) for table in tables]
    models = {name for name, _ in named}
    short = {}
    for name in models:
        parts = name.strip("/").split("/")
        others = [other.strip("/").split("/") for other in models if other != name]
        count = 2 if STEP.match(parts[-1]) else 1
        while count < len(parts) and any(parts[-count:] == other[-count:] for other in others):
            count += 1
        short[name] = "/".join(parts[-count:])
    revisions = Counter(name for name, _ in set(named))
    return [f"{short[name]} @ {revision}" if revisions[name] > 1 else short[name] for name, revision in named]


def training_step(label: str) -> int | None:
    """The step that a checkpoint's name ends with, such as 629 of gptneox/step629."""
    found = STEP.search(label)
    return int(found.group(1)) if found else None


SUMMARY_COLUMNS = (
    "model", "condition", "metric", "rows", "tokens", "pooling", "transform", "readout",
    "first", "last", "normed", "least", "most", "by layer",
)


def summary(scores: Iterable[LayerScore]) -> str:
    """One line a curve: where it starts and ends, the normed last layer, its least and most, and a small picture."""
    lines: list[tuple[str, ...]] = [SUMMARY_COLUMNS, *summary_lines(scores)]
    shown = [i for i in range(len(SUMMARY_COLUMNS)) if any(line[i] for line in lines[1:])]  # no empty columns
    return "\n".join(aligned([tuple(line[i] for i in shown) for line in lines]))


def aligned(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines of cells in columns as wide as their widest; control characters are written out."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary_lines(scores: Iterable[LayerScore]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    curves = LayerTable(tuple(scores)).curves()
    for (*setting, readout), curve in curves.items():
        if readout == "normed" and len(curve) == 1 and (*setting, "raw") in curves:
            continue  # the normed last layer stands in the raw curve's line
        model, *words = setting
        normed = curves.get((*setting, "normed"), [])
        known = [s for s in curve if s.value == s.value]
        least, most = (f"at {f(known, key=lambda s: s.value).layer}" if known else "" for f in (min, max))
        ends = [f"{s.value:.4g}" for s in (curve[0], curve[-1], *normed[-1:])] + [""] * (not normed)
        picture = sparkline([s.value for s in curve])
        lines.append((Path(model).name, *words, readout, *ends, least, most, picture))
    return lines


def sparkline(values: list[float]) -> str:
    """A line of small bars, lowest to highest; a dot where a value is undefined."""
    known = [v for v in values if math.isfinite(v)]
    low, span = min(known, default=0.0), (max(known, default=0.0) - min(known, default=0.0)) or 1.0
    return "".join(BARS[round((v - low) / span * (len(BARS) - 1))] if math.isfinite(v) else "·" for v in values)

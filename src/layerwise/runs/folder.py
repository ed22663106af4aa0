"""Run: a run folder on disk or in an object store, or a table in memory, opened in the same way by every verb."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from layerwise.core.display import redacted
from layerwise.core.errors import RunError
from layerwise.core.files import Folder, has_file, open_folder
from layerwise.core.formats import require_checksum
from layerwise.core.outputs import require_record
from layerwise.runs.claims import MARKER
from layerwise.runs.records import PICK, TRADEOFF, Schema
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import TABLE_FILE, LayerTable

PROMPTS, SHARDS = "prompts", "shards"  # folders within a run's
STATE_FILE = re.compile(r"state-\d{5,}\.safetensors")  # checkpoints: the merged state of the first shards
SHARD_FILE = re.compile(r"\d{5,}\.safetensors")  # states of single shards, in the folder shards


def state_file(shards: int) -> str:
    """The checkpoint that holds the first so many shards."""
    return f"state-{shards:05d}.safetensors"


def shard_file(number: int) -> str:
    return f"{SHARDS}/{number:05d}.safetensors"


def prompts_file(number: int) -> str:
    return f"{PROMPTS}/{number:05d}.parquet"


def shards_in(name: str) -> int:
    """12 for state-00012.safetensors."""
    return int(name.partition(".")[0].rpartition("-")[2])


def state_files(folder: Folder) -> list[str]:
    """The checkpoints in a folder, the newest last. A name that is only similar belongs to the user."""
    return sorted((name for name in folder.names() if STATE_FILE.fullmatch(name)), key=shards_in)


def is_run(given: object) -> TypeGuard["Run | LayerTable | str | Path"]:
    """True for a table, an opened run, or a place that holds a finished one; false for a model's name, say."""
    return isinstance(given, Run | LayerTable) or (isinstance(given, str | Path) and has_file(given, TABLE_FILE))


@dataclass(frozen=True)
class Run:
    """A finished run: its table, and whatever lies beside it, read on demand.

    Args:
        table: the rows.
        folder: where the run lies; None for a table in memory.
        name: path or url of the folder as it was given, without secrets.
        records: records of a table in memory, by file name.
    """

    table: LayerTable
    folder: Folder | None = None  # None: a table in memory
    name: str = ""  # the folder's path or url as it was given, without the secrets of a url
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of a table in memory, by file name

    @classmethod
    def open(cls, given: "Run | LayerTable | str | Path") -> "Run":
        """Opens a run; raises RunError if it is missing or damaged.

        Args:
            given: path or url of the folder, a table, or a run.
        """
        if isinstance(given, Run):
            return given
        if isinstance(given, LayerTable):
            return cls(given)
        folder = open_folder(given)
        return cls(LayerTable.load(folder), folder, redacted(str(given)))

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return self.name or "a table in memory"

    @property
    def kind(self) -> str:
        """scan, eval, stress or joined."""
        return self.table.kind or "scan"

    def each_model(self) -> "list[Run]":
        """The run itself, or one for each model where its table joins runs of several, as a campaign's does."""
        by_model: dict[tuple[str, str, str], list[LayerScore]] = {}
        for row in self.table:
            by_model.setdefault((row.model, row.revision, row.model_hash), []).append(row)
        if len(by_model) < 2:
            return [self]
        runs: dict[tuple[str, str], list[Any]] = {}
        for run in self.table.run.get("runs", []):
            model = run.get("model", {})
            runs.setdefault((model.get("name", ""), model.get("revision", "")), []).append(run)
        parts = []
        for (name, revision, model_hash), rows in by_model.items():
            candidates = runs.get((name, revision), [])
            sources = [run for run in candidates if not model_hash or run["model"].get("fingerprint") == model_hash]
            record = sources[0] if len(sources) == 1 else {"kind": "joined", "runs": sources}
            parts.append(Run(LayerTable(tuple(rows), record), name=self.name))
        return parts

    @cached_property
    def pick(self) -> Mapping[str, Any]:
        """The answer of pick that was saved in the folder; {} where there is none."""
        return self._record(PICK)

    @cached_property
    def tradeoff(self) -> Mapping[str, Any]:
        """The trade-off that was saved in the folder; {} where there is none."""
        return self._record(TRADEOFF)

    def _record(self, schema: Schema) -> Mapping[str, Any]:
        if schema.file in self.records:
            return self.records[schema.file]
        data = None if self.folder is None else self.folder.read(schema.file)
        if data is None:
            return {}
        record = schema.parse(data, f"{self.folder}/{schema.file}")
        model, fingerprint = self.table.model, dict(record.get("model") or {}).get("fingerprint")
        if model is not None and model.fingerprint and fingerprint and fingerprint != model.fingerprint:
            where = f"{self.folder}/{schema.file}"
            raise RunError(f"{where} is of another model than this run; make it again, or delete it")
        return record

    def newest_state(self) -> tuple[str, bytes] | None:
        """The name and the bytes of the newest checkpoint; None where the folder keeps none."""
        names = [] if self.folder is None or not self.has_marker else state_files(self.folder)
        if self.folder is None or not names:
            return None
        return f"{self.folder}/{names[-1]}", self.folder.read(names[-1]) or b""

    @cached_property
    def has_marker(self) -> bool:
        """False for runs of the first version, whose states and prompts carry no checksum, and for saved tables."""
        return self.folder is not None and self.folder.read(MARKER) is not None

    @property
    def keeps_prompts(self) -> bool:
        """True if it has numbers of single prompts that can be trusted."""
        return self.folder is not None and self.has_marker and bool(self.folder.names(PROMPTS))

    def prompts(self) -> Mapping[str, bytes]:
        """The files with the numbers of single prompts, by name; raises where one is not as it was written."""
        names = [] if self.folder is None else self.folder.names(PROMPTS)
        if self.folder is None or not names:
            raise RunError(f"{self.place} keeps no numbers of single prompts; scan it again with --keep-prompts all")
        if not self.has_marker:
            raise RunError(f"{self.place} was made by the first version of layerwise, without checksums; scan it again")
        files = {f"{self.folder}/{PROMPTS}/{name}": self.folder.read(f"{PROMPTS}/{name}") or b"" for name in names}
        for where, data in files.items():
            require_checksum(data, where)
        return files


def require_place_for(place: str | Path, schema: Schema) -> Folder:
    """The folder, if such a record can be written there; a file of that name that is not layerwise's is refused."""
    return require_record(place, schema.file, schema.ours)


def write_record(place: str | Path, schema: Schema, content: Mapping[str, Any]) -> None:
    """Writes a record into a folder, new or not; replaces an earlier one of its kind, and no other file."""
    require_place_for(place, schema).write(schema.file, schema.dump(content))

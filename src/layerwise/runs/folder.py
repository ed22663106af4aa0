"""Run: a run folder on disk or in an object store, or a table in memory, opened the same way by every verb."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from layerwise.core.display import redact_value
from layerwise.core.errors import RunError
from layerwise.core.files import Folder, has_file, open_folder
from layerwise.core.formats import require_checksum, stored_checksum
from layerwise.core.outputs import require_record
from layerwise.runs.ownership import MARKER
from layerwise.runs.records import PICK, TRADEOFF, WAYS, Schema
from layerwise.runs.result import TABLE_FILE
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable

PROMPTS, SHARDS = "prompts", "shards"  # subfolders of a run folder
PROMPT_FILES = "prompt_files"  # the field of run.json with the checksums of the files of per-prompt values
STATE_FILE = re.compile(r"state-\d{5,}\.safetensors")  # the merged state of all shards
SHARD_FILE = re.compile(r"\d{5,}-\d{5,}\.safetensors")  # merged states of some shards, in the subfolder shards
RESTORE = "restore the file that this run wrote, or repeat the run in another folder"


def state_file(shards: int) -> str:
    """The name of the state of a run of so many shards."""
    return f"state-{shards:05d}.safetensors"


def prompts_file(number: int) -> str:
    return f"{PROMPTS}/{number:05d}.parquet"


def shard_count(name: str) -> int:
    """12 for state-00012.safetensors."""
    return int(name.partition(".")[0].rpartition("-")[2])


def state_files(folder: Folder) -> list[str]:
    """The states in a folder, that of the most shards last. A file with a merely similar name belongs to the user."""
    return sorted((name for name in folder.names() if STATE_FILE.fullmatch(name)), key=shard_count)


def is_run(value: object) -> TypeGuard["Run | LayerTable | str | Path"]:
    """True for a table, an opened run, or the path of a finished run; False for a model name, for example."""
    return isinstance(value, Run | LayerTable) or (isinstance(value, str | Path) and has_file(value, TABLE_FILE))


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
    name: str = ""  # path or URL as the user gave it, without URL secrets
    # for a table in memory: its records by file name
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, source: "Run | LayerTable | str | Path", where: Mapping[str, Any] | None = None) -> "Run":
        """Opens a run; raises RunError if it is missing or damaged.

        Args:
            source: path or url of the folder, a table, or a run.
            where: columns and the values that rows must have; by default all rows.
        """
        if isinstance(source, Run):
            return replace(source, table=source.table.where(**where)) if where else source
        if isinstance(source, LayerTable):
            return cls(source.where(**where) if where else source)
        folder = open_folder(source)
        return cls(LayerTable.load(folder, where), folder, redact_value(str(source)))

    @property
    def location(self) -> str:
        """The location, for messages."""
        return self.name or "a table in memory"

    @property
    def kind(self) -> str:
        """scan, eval, probe, stress or joined."""
        return self.table.kind or "scan"

    def split_by_model(self) -> "list[Run]":
        """One run per model if the table joins several models, as in a campaign; otherwise the run itself."""
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
        """The saved result of pick, or {} if there is none."""
        return self._record(PICK)

    @cached_property
    def tradeoff(self) -> Mapping[str, Any]:
        """The saved trade-off, or {} if there is none."""
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
            raise RunError(f"{where} belongs to another model than this run; recreate it, or delete it")
        return record

    def newest_state(self) -> tuple[str, bytes] | None:
        """The name and bytes of the merged state, or None if there is none."""
        names = [] if self.folder is None or not self.has_marker else state_files(self.folder)
        if self.folder is None or not names:
            return None
        return f"{self.folder}/{names[-1]}", self.folder.read(names[-1]) or b""

    @property
    def missing_for_state(self) -> str | None:
        """The file that is gone from the folder of a scan, so that its state cannot be read; every scan writes one."""
        if self.kind != "scan" or self.folder is None or self.newest_state() is not None:
            return None
        if self.has_marker:
            return "state-*.safetensors"
        return MARKER if state_files(self.folder) else None  # a saved table has neither

    @cached_property
    def has_marker(self) -> bool:
        """False for saved tables, which are not run folders."""
        return self.folder is not None and self.folder.read(MARKER) is not None

    @property
    def has_prompts(self) -> bool:
        """True if it has per-prompt values."""
        return bool(self._prompt_names())

    def _prompt_names(self) -> list[str]:
        """The files with per-prompt values that the run wrote. Other files beside them are not its own."""
        names = [] if self.folder is None else [f"{PROMPTS}/{name}" for name in self.folder.names(PROMPTS)]
        own = self.table.run.get(PROMPT_FILES, {})
        return [name for name in names if name in own]

    @property
    def lacks_prompts(self) -> bool:
        """True for a scan that kept per-prompt values, if they are gone."""
        kept = dict(self.table.run.get("options", {})).get("keep_prompts", "none") != "none"
        return self.kind == "scan" and kept and self.has_marker and not self.has_prompts

    def prompts(self) -> Mapping[str, bytes]:
        """The files with per-prompt values, by name; raises if one is damaged, missing, or that of another run."""
        names = self._prompt_names()
        if self.folder is None or not names:
            raise RunError(f"{self.location} has no per-prompt values; repeat the scan with --keep-prompts all")
        files = {name: self.folder.read(name) or b"" for name in names}
        own = self.table.run[PROMPT_FILES]
        for name, data in files.items():
            require_checksum(data, f"{self.folder}/{name}")
            if stored_checksum(data) != own[name]:
                raise RunError(f"{self.folder}/{name} belongs to another run; {RESTORE}")
        if missing := sorted(set(own) - set(files)):
            raise RunError(f"{self.folder}/{missing[0]} is missing; {RESTORE}")
        return {f"{self.folder}/{name}": data for name, data in files.items()}


def saved_ways(location: Any) -> Mapping[str, Any] | None:
    """What `shrink` found where it compared ways in this folder; None for anything else."""
    if not isinstance(location, str | Path):
        return None
    folder = open_folder(location)
    data = folder.read(WAYS.file)
    return None if data is None else WAYS.parse(data, f"{folder}/{WAYS.file}")


def require_record_folder(location: str | Path, schema: Schema) -> Folder:
    """The folder, if the record can be written there; raises if a file of that name is not layerwise's."""
    return require_record(location, schema.file, schema.identifying_fields)


def write_record(location: str | Path, schema: Schema, content: Mapping[str, Any]) -> None:
    """Writes a record to a new or existing folder; replaces an earlier record of the same kind only."""
    require_record_folder(location, schema).write(schema.file, schema.dump(content))


RunLike = Run | LayerTable | str | Path  # what a function takes as a run: its folder, its table or itself


def run_list(runs: Any) -> list[Any]:
    """One run, or several in a list or tuple, as a list."""
    return list(runs) if isinstance(runs, list | tuple) else [runs]

"""Records: the JSON files of runs and exports, each with a schema version, read the same way by every verb.

A record of a newer version is refused, since an unknown field may change what a number means.
"""

import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any

from layerwise.core.display import redact_record, redact_value
from layerwise.core.errors import RunError
from layerwise.core.formats import json_bytes, parse_object, require_shape, verified_record, with_checksum
from layerwise.runs.identity import MODEL_SHAPE

Record = dict[str, Any]
NUMBER_TYPES = (int, float)
OPTIONAL_NUMBER_TYPES = (int, float, NoneType)
DATA_SHAPE = {
    "name": str, "fingerprint": str, "options": dict, "prompts": int, "tokens": int, "cut": int, "missing": list,
    "blank_rows": int, "unit": str,
}  # fmt: skip


class NewerVersionError(RunError):
    """A record written by a newer version of layerwise."""


@dataclass(frozen=True)
class Schema:
    """One kind of JSON file: its name, its version, and the types of the fields that verbs rely on."""

    file: str
    version: int
    shape: Mapping[str, Any]
    identifying_fields: tuple[str, ...]  # fields that identify the file as layerwise's

    def parse(self, data: bytes, where: str) -> Record:
        """Parses a record; raises RunError with the file name."""
        record = parse_object(data, where)
        if "schema_version" not in record:
            raise RunError(f"{where} was not written by layerwise, or is damaged; restore it, or make it again")
        self.require_known_version(record, where)  # before the checksum, which a newer version may compute otherwise
        return self.read(verified_record(record, where), where)

    def read(self, record: Record, where: str) -> Record:
        """The fields of a record inside another file, which need not have a version of its own."""
        require_shape(record, self.shape, where)
        return {name: value for name, value in record.items() if name != "schema_version"}

    def require_known_version(self, record: Record, where: str) -> None:
        """Raises RunError if the version of a record is none, or a newer one."""
        record_version = record["schema_version"]
        if isinstance(record_version, bool) or not isinstance(record_version, int) or record_version < 1:
            raise RunError(f"{where} is damaged (schema_version {record_version!r}); make it again")
        if record_version > self.version:
            raise NewerVersionError(
                f"{where} was written by a newer layerwise (schema_version {record_version}; this version reads up to "
                f"{self.version}); update layerwise"
            )

    def require_not_newer(self, data: bytes, where: str) -> None:
        """Raises if a newer layerwise wrote this record. A damaged record is accepted, since its run may replace it."""
        try:
            self.parse(data, where)
        except NewerVersionError:
            raise
        except RunError:
            return

    def dump(self, content: Mapping[str, Any]) -> bytes:
        """The bytes of a record with a checksum, with URL secrets redacted."""
        return json_bytes(with_checksum(redact_record({"schema_version": self.version, **content})))


RUN = Schema(
    "run.json",
    1,
    {
        "kind": str,
        "model": MODEL_SHAPE,
        "data": DATA_SHAPE,
        "plan": {"max_length": int, "metrics": list, "stress": {"kind": str, "level": NUMBER_TYPES}},
        "options": {"verb": str, "model": (dict, NoneType), "data": (dict, NoneType), "campaign": str},
        "prompt_files": dict,  # checksums of the files of per-prompt values, by name
        "next": dict,  # the record that replaces this one
        "metrics": dict,
        "environment": dict,
        "tasks": dict,
        "failed": dict,
        "test": {"name": str, "fingerprint": str, "options": dict},
        "labels": dict,
        "probes": [dict],
        "max_length": (int, NoneType),
        "seconds": NUMBER_TYPES,
    },
    ("kind",),
)
PLAN = Schema("plan.json", 1, {"settings": dict, "origin": dict}, ("settings", "origin"))
GAIN = {"mean": NUMBER_TYPES, "error": NUMBER_TYPES, "low": NUMBER_TYPES, "high": NUMBER_TYPES}
PICKED_LAYER = {
    "layer": int, "transform": str, "scores": dict, "gain": GAIN, "relative_time": OPTIONAL_NUMBER_TYPES,
    "unsteady_time": bool, "same_within_noise": bool,
}  # fmt: skip
PICK = Schema(
    "pick.json",
    1,
    {
        "model": MODEL_SHAPE, "recipe": {"layer": int}, "last": {"layer": int}, "rule": str, "why": [str],
        "layers_alike": [int], "saving": dict, "gain": (dict, NoneType),
        "fitted": (str, NoneType), "prefer": str, "judged_on": str, "options": dict, "input_kind": str,
        "layers": [PICKED_LAYER], "static_model": PICKED_LAYER,
    },
    ("model", "recipe", "last", "rule"),
)  # fmt: skip
TRADEOFF = Schema(
    "tradeoff.json",
    1,
    {
        "layers": [{
            "layer": int, "score": OPTIONAL_NUMBER_TYPES, "latency": OPTIONAL_NUMBER_TYPES,
            "parameters": OPTIONAL_NUMBER_TYPES, "memory": OPTIONAL_NUMBER_TYPES, "pareto": bool,
        }],
        "units": dict,
        "model": MODEL_SHAPE,
        "options": dict,
    },
    ("layers", "units"),
)  # fmt: skip
WAYS = Schema(
    "ways.json",
    1,
    {
        "model": MODEL_SHAPE,
        "data": {"name": str, "fingerprint": str, "count": int},
        "ways": [{
            "name": str, "words": str, "bytes": int, "times": dict, "agreement": (dict, NoneType),
            "compatibility": (dict, NoneType),
        }],
        "not_made": dict,  # why, by the name of the way
        "recommended": str,
        "answer": [str],
        "environment": dict,
    },
    ("model", "ways", "recommended"),
)  # fmt: skip
# With what the test tasks of a protocol are scored: hashes of the file, of each recipe and of each task's data, and the
# texts that maps are fitted on.
FROZEN = Schema(
    "frozen.json", 1, {"protocol": str, "recipes": dict, "tasks": dict, "fit": dict}, ("protocol", "recipes", "tasks")
)
CELL = Schema("cell.json", 1, {"model": dict, "data": dict, "settings": dict}, ("model", "data", "settings"))
# A figure or table of the paper that was made.
REPRODUCTION = Schema(
    "reproduction.json",
    1,
    {
        "experiment": str, "scale": str, "steps": str, "models": [str], "data": str, "files": [str],
        "seconds": NUMBER_TYPES, "environment": dict,
    },
    ("experiment", "scale"),
)  # fmt: skip
FAILED = Schema("failed.json", 1, {"reason": str, "time": str}, ("reason", "time"))  # of a scan in a campaign


def parse_run(data: bytes, where: str) -> Record:
    """The record in run.json: of one run, or of all the runs that a table joins."""
    return with_runs(RUN.parse(data, where), where)


def read_run(record: Record, where: str) -> Record:
    """The same for JSON that is already parsed."""
    return with_runs(RUN.read(record, where), where)


def with_runs(run: Record, where: str) -> Record:
    require_shape(run, {"runs": [dict]}, where)
    if "runs" in run:
        run["runs"] = [RUN.read(part, f"{where}: runs[{number}]") for number, part in enumerate(run["runs"])]
    return run


def environment() -> dict[str, str]:
    """Versions and machine, for the record of a run; plus the command, if run from the command line."""
    names = ("layerwise", "torch", "transformers", "numpy")
    versions = {name: version(name) for name in names}
    script = Path(sys.argv[0])
    if (script.parent.name if script.stem == "__main__" else script.stem) == "layerwise":  # also python -m layerwise
        versions["command"] = shlex.join(["layerwise", *map(redact_value, sys.argv[1:])])
    return {**versions, "python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}

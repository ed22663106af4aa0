"""Tasks in the record of an evaluation: type, score, number of examples, and source of the data."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from layerwise.core.formats import require_shape


@dataclass(frozen=True)
class TaskRecord:
    """What run.json records about one task."""

    type: str = ""  # such as STS
    score: str = ""  # mteb's name for the main score; "" if the task failed
    examples: int = 0  # 0 if the data came from the hub
    of: int = 0  # number of examples before the cap
    source: Literal["local", "hub"] = "hub"

    @property
    def size(self) -> str:
        """The number of examples, as text."""
        return "hub" if self.source == "hub" else format_size(self.examples, self.of)


TASK_SHAPE = {field.name: str if field.name in ("type", "score", "source") else int for field in fields(TaskRecord)}


def format_size(examples: int, total: int) -> str:
    """The number of examples of a task, and how many it had before the cap."""
    return f"{examples}" if examples == total else f"{examples} of {total}, sampled by hashed id"


def task_records(run: Mapping[str, Any]) -> dict[str, TaskRecord]:
    """The tasks of a run or of joined runs."""
    records: dict[str, TaskRecord] = {}
    for part in run.get("runs") or [run]:
        for name, entry in part.get("tasks", {}).items():
            require_shape(entry, TASK_SHAPE, f"run.json: tasks: {name}")
            records[name] = TaskRecord(**{key: entry[key] for key in TASK_SHAPE if key in entry})
    return records


def task_sizes(run: Mapping[str, Any]) -> dict[str, str]:
    """The number of examples of each task, as text."""
    return {name: record.size for name, record in task_records({"tasks": run.get("tasks", {})}).items()}

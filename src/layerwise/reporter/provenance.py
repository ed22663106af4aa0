"""Where numbers come from: the facts of a run in words, and the command that makes it again."""

import shlex
from collections.abc import Mapping
from typing import Any

from layerwise.core.checks import SHIPPED
from layerwise.options.record import RECORDED, command_words
from layerwise.runs.table import LayerTable
from layerwise.runs.tasks import task_sizes

Words = list[tuple[str, str]]


def facts(table: LayerTable) -> Words:
    """What a reader must know to believe a run: model, texts, settings, versions; only what the run says."""
    first = first_run(table)
    model, data, environment = (first.get(name, {}) for name in ("model", "data", "environment"))
    size = " x ".join(str(model[k]) for k in ("depth", "width") if k in model)
    found = {
        "model": model.get("name") or next((s.model for s in table.scores), ""),
        "revision": model.get("revision", ""),
        "weights and tokenizer": model.get("fingerprint", ""),
        "family": model.get("family", ""),
        "layers x width": size,
        "computed in": " on ".join(str(model[k]) for k in ("dtype", "device") if k in model),
        "texts": data.get("name", ""),
        "how many": counted(data) if data else "",
        "texts' fingerprint": data.get("fingerprint", ""),
        "tasks": ", ".join(f"{name} ({size})" for name, size in task_sizes(first).items()),
        "settings": "; ".join(f"{k} {plain(v)}" for k, v in first.get("plan", {}).items() if k != "layers"),
        "versions": ", ".join(f"{k} {v}" for k, v in environment.items() if k not in ("command", "machine")),
        "machine": environment.get("machine", ""),
        "finished": first.get("finished", ""),
        "seconds": f"{first['seconds']:g}" if "seconds" in first else "",
    }
    return [(name, str(value)) for name, value in found.items() if value]


def first_run(table: LayerTable) -> Mapping[str, Any]:
    """The run itself; of a joined table, such as that of a stress test, the first of its runs."""
    runs = table.run.get("runs") or [table.run]
    return dict(runs[0])


def counted(data: Mapping[str, Any]) -> str:
    cut = f", {data['cut']} of them cut at the longest length" if data.get("cut") else ""
    return f"{data.get('prompts', '?')} texts, {data.get('tokens', '?')} tokens{cut}"


def plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def command(table: LayerTable, out: str) -> str:
    """The command that makes the run again: as it was typed, else put together from what the run recorded."""
    first = first_run(table)
    if typed := first.get("environment", {}).get("command"):
        return str(typed)
    record = first.get("options", {})
    if record.get("verb") not in RECORDED:
        record = record_of_plan(table, first)
    words = command_words(record, model=str(first.get("model", {}).get("name", "MODEL")))
    return shlex.join([*words, "--out", out])


def words_used(table: LayerTable, column: str) -> list[str]:
    """The words of a column that can be asked for; the model's own pooling has none."""
    return list(dict.fromkeys(word for s in table.scores if (word := getattr(s, column)) != SHIPPED))


def record_of_plan(table: LayerTable, first: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, as far as the plan of a run tells that was made before runs recorded it."""
    plan = first.get("plan") or {"max_length": first.get("max_length")}
    model = {name: value for name, value in first.get("model", {}).items() if name in ("name", "dtype")}
    if first.get("kind") == "eval":
        tasks = first.get("tasks", {})
        root = "ROOT" if any(size != "hub" for size in tasks.values()) else None
        read = {name: words_used(table, name) for name in ("tokens", "pooling")}
        return {**plan, **read, "verb": "eval", "model": model, "tasks": list(tasks), "data_root": root}
    record = {**plan, "verb": "scan", "model": model, "data": first.get("data", {}).get("options")}
    stressed = [run["plan"]["stress"] for run in table.run.get("runs", []) if run.get("plan", {}).get("stress")]
    if stressed:
        record |= {"verb": "stress", "kind": stressed[0]["kind"], "levels": [s["level"] for s in stressed]}
    return record

"""Where numbers come from: the facts of a run in words, and the command that makes it again."""

import shlex
from collections.abc import Mapping
from typing import Any

from layerwise.metrics.catalog import CATALOG
from layerwise.runs.table import LayerTable
from layerwise.runs.tasks import has_local_task, task_sizes

# What scan does unasked: a command need not say it.
FAST = ",".join(m.name for m in CATALOG if all(m.reading(rows).views == 0 for rows in m.rows))
UNASKED = {"metrics": FAST, "rows": "raw", "tokens": "all", "readout": "raw", "pooling": "mean", "seed": "0"}
Words = list[tuple[str, str]]

# What opens texts unasked.
USUAL_TEXTS = {"column": "text", "split": "train", "min_tokens": 0}


def facts(table: LayerTable) -> Words:
    """What a reader must know to believe a run: model, texts, settings, versions; only what the run says."""
    first = first_run(table)
    model, data, environment = (first.get(name, {}) for name in ("model", "data", "environment"))
    size = " x ".join(str(model[k]) for k in ("depth", "width") if k in model)
    told = {
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
    return [(name, str(value)) for name, value in told.items() if value]


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
    model = first.get("model", {})
    told = first.get("plan") or {"max_length": first.get("max_length")}
    stressed = [run["plan"]["stress"] for run in table.run.get("runs", []) if run.get("plan", {}).get("stress")]
    verb = "stress" if stressed else str(first.get("kind", "scan"))
    options: dict[str, Any] = text_options(first.get("data", {})) if verb != "eval" else {}
    if stressed:
        options |= {"kind": stressed[0]["kind"], "levels": ",".join(f"{s['level']:g}" for s in stressed)}
    if verb == "eval":
        root = "ROOT" if has_local_task(first) else None
        options |= {"tasks": ",".join(first.get("tasks", {})), "data-root": root}
        options |= {name: used(table, name) for name in ("tokens", "pooling")}
    options["max-length"] = told.get("max_length")
    options |= {name: plain(told[name]) for name in UNASKED if name in told}
    options = {name: value for name, value in options.items() if value != UNASKED.get(name)}
    options["dtype"] = model.get("dtype") if model.get("dtype", "float32") != "float32" else None
    words = ["layerwise", verb, str(model.get("name", "MODEL"))]
    words += [part for name, value in options.items() if value for part in (f"--{name}", str(value))]
    return shlex.join([*words, "--out", out])


def text_options(data: Mapping[str, Any]) -> dict[str, str]:
    """The options that open these texts again; texts that were never a file are TEXTS.txt."""
    options = data.get("options") or {"data": "TEXTS.txt"}
    asked = {name: value for name, value in options.items() if value is not None and value != USUAL_TEXTS.get(name)}
    return {name.replace("_", "-"): str(value) for name, value in asked.items()}


def used(table: LayerTable, column: str) -> str:
    return ",".join(dict.fromkeys(getattr(s, column) for s in table.scores))

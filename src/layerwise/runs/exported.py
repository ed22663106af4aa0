"""The certificate of an exported folder, layerwise.json: its name, its version, its times in words, and folders of
earlier versions."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from layerwise.core.display import command_line, operand

RECORD_FILE = "layerwise.json"
# 1 had no agreement, blocks, scores and whole_model; 2 had prompts, no templates; 3 had modules.json with names of
# modules that only sentence-transformers knows, no serving table, and no `shrunk`.
SCHEMA_VERSION = 4
FIRST_SERVABLE_VERSION = 4


def time_words(times: Sequence[Mapping[str, Any]]) -> str:
    """`0.58 of the whole model's on short texts (3 tokens), 0.52 (20), 0.46 (270)`."""
    first, *others = times
    short = "" if first["tokens"] is None else f" on short texts ({first['tokens']} tokens)"
    rest = [f"{ratio_words(found)} ({found['tokens']})" for found in others]
    return ", ".join([f"{ratio_words(first)} of the whole model's{short}", *rest])


def ratio_words(found: Mapping[str, Any]) -> str:
    """`0.58`, or `0.58 [unsteady: 0.44 to 0.71]` where the repeats disagree; two digits of a small one."""
    ratio, low, high = (
        f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
        for value in (found[name] for name in ("ratio", "low", "high"))
    )
    return f"{ratio} [unsteady: {low} to {high}]" if found["unsteady"] else ratio


def outdated_export(folder: str | Path) -> str:
    """What is wrong with a folder that an earlier version exported, and how to export it again; "" for any other."""
    try:
        record = json.loads((Path(folder) / RECORD_FILE).read_bytes())
    except (OSError, ValueError):
        return ""
    if not isinstance(record, dict) or not isinstance(record.get("recipe"), dict):
        return ""
    version = record.get("schema_version", 1)
    if not isinstance(version, int) or version >= FIRST_SERVABLE_VERSION:
        return ""
    model = record.get("model", record.get("base_model"))  # the first version called it base_model
    name = model.get("name") if isinstance(model, dict) else model
    words = ["layerwise", "export", operand(str(name or "MODEL")), "--recipe", str(folder)]
    words += ["--fit", "FILE"] if record["recipe"].get("transform", "none") != "none" else []
    return (
        f"{folder} was exported by an earlier version of layerwise. It gives the right vectors in "
        "sentence-transformers, but other servers skip its linear map or pool it differently. Export it again: "
        f"{command_line([*words, '--out', 'NEW'])}"
    )

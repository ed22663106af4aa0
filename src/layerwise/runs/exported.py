"""The certificate of an exported folder, layerwise.json: its name, its version, and folders of earlier versions."""

import json
from pathlib import Path

from layerwise.core.display import command_line, operand

RECORD_FILE = "layerwise.json"
# 1 had no agreement, blocks, scores and whole_model; 2 had prompts, no templates; 3 had modules.json with names of
# modules that only sentence-transformers knows, no serving table, and no `shrunk`.
SCHEMA_VERSION = 4
FIRST_SERVABLE_VERSION = 4


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

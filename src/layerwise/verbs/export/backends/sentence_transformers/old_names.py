"""Names that older readers know: `sentence_transformers.models.*` in modules.json, and a flag per pooling mode.

sentence-transformers 5.4 and newer write other names, and read both. Text Embeddings Inference and older readers know
only the old ones: they skip a Dense with another name, and choose a pooling of their own.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerwise.core.files import write_json
from layerwise.models.shipped import OLD_POOLING_KEYS, pooling_modes

OLD_PACKAGE = "sentence_transformers.models"


def write_old_names(folder: Path, max_length: int) -> None:
    """Rewrites modules.json and the configs of the transformer and of every Pooling; what newer versions read stays."""
    path = folder / "modules.json"
    modules = json.loads(path.read_text(encoding="utf-8"))
    for module in modules:
        if module["type"].startswith("sentence_transformers."):
            module["type"] = f"{OLD_PACKAGE}.{module['type'].rpartition('.')[2]}"
        if module["type"] == f"{OLD_PACKAGE}.Transformer":  # older readers find the length only here
            config = folder / module["path"] / "sentence_bert_config.json"
            old = {"max_seq_length": max_length, "do_lower_case": False}
            write_json(config, old | json.loads(config.read_text(encoding="utf-8")))
        if module["type"] == f"{OLD_PACKAGE}.Pooling":
            config = folder / module["path"] / "config.json"
            write_json(config, with_old_keys(json.loads(config.read_text(encoding="utf-8"))))
    write_json(path, modules)


def with_old_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a Pooling module with the old keys added, unless they would mean another order."""
    modes = pooling_modes(dict(config))
    if list(modes) != in_old_order(modes):
        return dict(config)
    # The width under its old name only: every version reads that, and newer ones print advice if they find both.
    names = {"embedding_dimension": "word_embedding_dimension"}
    renamed = {names.get(key, key): value for key, value in config.items()}
    return {**renamed, **{key: mode in modes for key, mode in OLD_POOLING_KEYS.items()}}


def in_old_order(modes: tuple[str, ...]) -> list[str]:
    """The modes in the order in which readers of the old keys concatenate their vectors."""
    return sorted(modes, key=list(OLD_POOLING_KEYS.values()).index)

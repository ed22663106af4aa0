"""Runs as verbs take them: a folder, a url or a table."""

from typing import Any

from layerwise.runs.table import LayerTable


def as_table(run: Any) -> LayerTable:
    return run if isinstance(run, LayerTable) else LayerTable.load(run)

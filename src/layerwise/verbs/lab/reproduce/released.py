"""The authors' published results as tables of layer scores, one per model.

Published numbers stay as they are: metrics keep the names and the definitions of the authors' code, which differ from
those of layerwise (docs/theory.md, items 8 and 9). Their row treatment is called `released` for that reason.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.errors import InputError
from layerwise.inputs.tables import read_table
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.verbs.lab.reproduce.inputs import PUBLISHED

ROWS = "released"
KINDS = {"scores": "eval", "metrics": "scan", "image_probes": "probe", "image_metrics": "scan"}


def released_tables(
    folder: Path, kind: str, models: Mapping[str, Mapping[str, Any]], where: Mapping[str, Any]
) -> dict[str, LayerTable]:
    """One table per model.

    Args:
        folder: where the published tables are.
        kind: scores, metrics, image_probes or image_metrics.
        models: for each name, the values of columns that choose its rows, and `blocks` for image models.
        where: values of columns that all rows must have; a list allows several.
    """
    frame = read_table(folder / PUBLISHED[kind])
    frame = PREPARE[kind](frame)
    for column, value in where.items():
        frame = frame[frame[column].isin(value if isinstance(value, list) else [value])]
    unit = {"maxEntropy": "share of maximum"}.get(str(where.get("normalisation")), "")
    tables = {}
    for name, columns in models.items():
        part = frame
        for column, value in columns.items():
            if column != "blocks":
                part = part[part[column] == value]
        if part.empty:
            raise InputError(f"the published {kind} have no rows of {name} ({dict(columns)})")
        blocks = columns.get("blocks")
        part = part.assign(blocks=blocks) if blocks else part
        run = {"kind": KINDS[kind], "metrics": {str(metric): {"unit": unit} for metric in part.metric.unique()}}
        tables[name] = LayerTable(tuple(layer_scores(name, part, kind)), run)
    return tables


def layer_scores(name: str, frame: pd.DataFrame, kind: str) -> list[LayerScore]:
    is_metric = KINDS[kind] == "scan"
    return [
        LayerScore(
            model=name,
            layer=int(row.layer),
            depth=min(1.0, row.layer / row.blocks),
            norm="normed" if kind == "scores" else "raw",
            tokens="all",
            pooling="mean" if kind == "scores" else "-",
            rows=ROWS if is_metric else "-",
            metric=str(row.metric),
            value=float(row.value),
            n=0,
            data=str(row.data),
        )
        for row in frame.itertuples(index=False)
        if math.isfinite(row.value)
    ]


def prepare_scores(frame: pd.DataFrame) -> pd.DataFrame:
    """The English test scores in points; where a last layer has only a folder of its own, that of this folder."""
    frame = frame[(frame.split == "test") & frame.english_subset]
    frame = frame.sort_values("variant", key=lambda column: column.astype(str))  # the usual folders first
    frame = frame.drop_duplicates(["family", "size", "revision", "task", "layer"])
    return frame.assign(
        metric=frame.task, data=frame.task_type, value=100 * frame.main_score, blocks=frame.n_layers - 1
    )


def prepare_metrics(frame: pd.DataFrame) -> pd.DataFrame:
    """Metrics without impossible values; their data are the task that they were measured on, or the data set."""
    frame = frame[~frame.out_of_range.astype(bool)]
    task = frame.task.astype(str)
    return frame.assign(data=task.where(task != "", frame.dataset.astype(str)), blocks=frame.n_values - 1)


def prepare_image_probes(frame: pd.DataFrame) -> pd.DataFrame:
    """Top-1 accuracy of the attention probe on single layers. Probe k reads hidden state k - 1."""
    frame = frame[(frame.kind == "probe") & (frame.name == "attention_probe") & (frame.quantity == "val_acc1")]
    frame = frame[frame.layer_from == frame.layer_to]
    return frame.assign(metric="attention_probe_accuracy", layer=frame.layer_from - 1, data=frame.dataset, blocks=24)


def prepare_image_metrics(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame[frame.kind == "metric"]
    blocks = frame.groupby(["family", "size", "name", "quantity"], observed=True).layer_to.transform("max")
    return frame.assign(
        metric=frame.name, layer=frame.layer_from, data=frame.dataset, normalisation=frame.quantity, blocks=blocks
    )


PREPARE = {
    "scores": prepare_scores,
    "metrics": prepare_metrics,
    "image_probes": prepare_image_probes,
    "image_metrics": prepare_image_metrics,
}

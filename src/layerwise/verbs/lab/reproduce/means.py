"""The mean score of each layer over tasks, with the same tasks at every layer."""

import math
from collections.abc import Mapping
from dataclasses import replace

from layerwise.runs.scores import LayerScore
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable

MEAN_SCORE = "mean_score"


def mean_over_tasks(table: LayerTable) -> LayerTable:
    """One row per layer and setting: the mean over tasks. The model's name says over how many.

    A mean over other tasks at each layer would be a curve of the tasks, not of the layers. So only tasks that were
    scored at the same layers are averaged.
    """
    settings: dict[tuple[object, ...], list[LayerScore]] = {}
    for row in table:
        if math.isfinite(row.value):
            settings.setdefault((row.recipe, row.revision), []).append(row)
    means = []
    for rows in settings.values():
        by_task: dict[str, dict[int, LayerScore]] = {}
        for row in rows:
            by_task.setdefault(row.metric, {})[row.layer] = row
        tasks, layers = largest_grid({task: set(scores) for task, scores in by_task.items()})
        for layer in layers:
            scores = [by_task[task][layer] for task in tasks]
            means.append(mean_row(scores))
    return LayerTable(tuple(means), table.run)


def mean_row(scores: list[LayerScore]) -> LayerScore:
    """One row with the mean of these; `n` is their number."""
    return replace(
        scores[0],
        model=f"{scores[0].model} ({counted(len(scores), 'task')})",
        metric=MEAN_SCORE,
        value=sum(row.value for row in scores) / len(scores),
        n=len(scores),
        skipped=0,
        ci_low=math.nan,
        ci_high=math.nan,
        data="",
        data_hash="",
    )


def largest_grid(layers_of: Mapping[str, set[int]]) -> tuple[list[str], list[int]]:
    """Tasks and layers such that every task was scored at every layer, and as many scores as possible are kept.

    Tries the tasks that were scored at least at 1, 2, ... layers, with the layers that all of these share.
    """
    candidates = []
    for least in sorted({len(layers) for layers in layers_of.values()}):
        tasks = [task for task, layers in layers_of.items() if len(layers) >= least]
        candidates.append((tasks, sorted(set.intersection(*(layers_of[task] for task in tasks)))))
    return max(candidates, key=lambda found: len(found[0]) * len(found[1]))

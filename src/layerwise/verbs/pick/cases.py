"""Cases: what a rule is tested on. One task of one model, its score at every layer, and the curves a rule may read."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from layerwise.core.checks import require_count
from layerwise.core.errors import InputError
from layerwise.inputs.tables import is_missing, number_column
from layerwise.runs.table import MAX_LAYERS, LayerTable

SCORE_COLUMNS = ("family", "model", "task", "layer", "score")
METRIC_COLUMNS = ("model", "task", "layer", "metric", "value")


@dataclass(frozen=True)
class Case:
    """One task of one model. `scores` has one number per layer, nan where there is none; the last is always known."""

    family: str
    model: str
    task: str
    scores: tuple[float, ...]
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return len(self.scores) - 1

    @property
    def last(self) -> float:
        return self.scores[-1]

    @property
    def best(self) -> float:
        return max(s for s in self.scores if math.isfinite(s))

    def score_at(self, layer: int) -> float:
        """The score of that layer, or of the nearest scored layer; ties go to the later one."""
        scored = [k for k, s in enumerate(self.scores) if math.isfinite(s)]
        return self.scores[min(scored, key=lambda k: (abs(k - layer), -k))]


def cases_from_frames(scores: Any, metrics: Any = None) -> list[Case]:
    """Cases from long tables: family, model, task, layer, score; and model, task, layer, metric, value.

    A metric with an empty task belongs to the model and is used for all its tasks, unless a task has its own.
    """
    names = [frame.attrs.get("path") or f"the table of {what}" if frame is not None else ""
             for frame, what in ((scores, "scores"), (metrics, "metrics"))]  # fmt: skip
    tables = ((scores, SCORE_COLUMNS, names[0]), *([] if metrics is None else [(metrics, METRIC_COLUMNS, names[1])]))
    for frame, required, name in tables:
        if missing := set(required) - set(frame.columns):
            raise InputError(f"{name} lacks {', '.join(sorted(missing))}; it needs {', '.join(required)}")
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    scores = convert_numbers(scores, "score", names[0])
    metrics = metrics if metrics is None else convert_numbers(metrics, "value", names[1])
    for row in () if metrics is None else metrics.itertuples(index=False):
        task = "" if is_missing(row.task) else row.task  # pandas reads an empty cell as NaN
        curves.setdefault((row.model, task), {}).setdefault(row.metric, {})[row.layer] = row.value
    cases = []
    for (family, model, task), group in scores.groupby(["family", "model", "task"], sort=True, observed=True):
        by_layer = dict(zip(group.layer, group.score, strict=True))
        depth = max(by_layer)
        if not math.isfinite(by_layer[depth]):
            raise InputError(
                f"{names[0]}: {model} on {task}: the last layer ({depth}) has no score, so nothing can be compared"
            )
        metric_values = curves.get((model, ""), {}) | curves.get((model, task), {})
        curves_of_case = {name: fill_layers(values, depth) for name, values in metric_values.items()}
        cases.append(Case(str(family), str(model), str(task), fill_layers(by_layer, depth), curves_of_case))
    return cases


def convert_numbers(frame: Any, value: str, where: str) -> Any:
    """Converts layers to int and values to float; empty cells become NaN."""
    layers = [require_count(f"layer in {where}", n, minimum=0) for n in number_column(frame, "layer", where)]
    if max(layers, default=0) > MAX_LAYERS:  # a list as long as the model is deep is made below
        raise InputError(f"{where} has layer {max(layers):,}; no model has more than {MAX_LAYERS:,}")
    values = [float(number) for number in number_column(frame, value, where, allow_missing=True)]
    return frame.assign(**{"layer": layers, value: values})


def fill_layers(values: Mapping[int, float], depth: int) -> tuple[float, ...]:
    return tuple(float(values.get(layer, math.nan)) for layer in range(depth + 1))


def metric_curves(table: LayerTable) -> dict[str, tuple[float, ...]]:
    """The main curve of each metric; its last layer as shipped, else normed if the model has a norm.

    A layer that was not measured is nan.
    """
    depth, ends = model_depth(table), table.outputs()
    return {
        metric: fill_layers({row.layer: row.value for row in (*curve, ends[metric])}, depth)
        for metric, curve in table.main_curves().items()
    }


def model_depth(table: LayerTable) -> int:
    """The number of blocks of the table's model, even if not all layers were measured.

    Every row has its layer and its share of the depth; a table of layer 0 alone needs the run's record.
    """
    if len(models := {(row.model, row.revision, row.model_hash) for row in table}) != 1:
        names = ", ".join(sorted(f"{model}@{revision}" for model, revision, _ in models)) or "none"
        raise InputError(f"expected the table of one model, got {len(models)} ({names})")
    if wrong := next((row for row in table if row.layer > 0 and not row.depth > 0), None):
        raise InputError(f"layer {wrong.layer} has depth {wrong.depth:g} in this table, which no model has; scan again")
    depths = {round(row.layer / row.depth) for row in table if row.layer > 0}
    depths |= {table.model.depth} if table.model and table.model.depth else set()
    if len(depths) != 1:
        raise InputError(
            "the number of layers cannot be determined from this table; repeat the scan with the last layer"
        )
    return int(depths.pop())


def cases_from_runs(runs: Iterable[tuple[str, LayerTable, Sequence[LayerTable]]]) -> list[Case]:
    """Cases from runs: (family, evaluation, scans of the same model)."""
    cases = []
    for family, evaluation, scans in runs:
        curves = {name: curve for table in scans for name, curve in metric_curves(table).items()}
        model = next(iter(evaluation)).model
        for task, scores in metric_curves(evaluation).items():
            if not math.isfinite(scores[-1]):
                raise InputError(f"{model} on {task}: the last layer ({len(scores) - 1}) has no score")
            cases.append(Case(family, model, task, scores, curves))
    return cases

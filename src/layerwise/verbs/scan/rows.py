"""From states to rows: the scores of every layer, and the table of per-prompt values."""

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from layerwise.core.display import redact_value
from layerwise.core.errors import InputError
from layerwise.core.formats import parquet_bytes
from layerwise.metrics.base import Estimate, Metric
from layerwise.metrics.intervals import interval
from layerwise.metrics.ops.rows import RowTreatment
from layerwise.metrics.readings import Reading
from layerwise.runs.identity import DataRef, ModelRef
from layerwise.runs.scores import LayerScore
from layerwise.verbs.scan.plan import Measurement, ScanPlan
from layerwise.verbs.scan.state import ScanState
from layerwise.verbs.scan.sum_precision import make_accumulator
from layerwise.verbs.scan.worker import PromptValues


def layer_scores(
    model: ModelRef, plan: ScanPlan, state: ScanState, data: DataRef, layer: int
) -> tuple[LayerScore, ...]:
    """The rows of one layer, one per metric and setting. Shared intermediate results are freed afterwards."""
    finished: dict[tuple[object, ...], object] = {}
    settings = plan.settings_hash()
    return tuple(
        LayerScore(
            model=model.name,
            revision=model.revision,
            layer=m.readout.layer,
            depth=m.readout.layer / plan.depth,
            norm=m.readout.norm,
            point=m.point,
            tokens=m.readout.tokens,
            pooling=m.pooling,
            rows=m.rows,
            metric=m.metric.name,
            data=redact_value(data.name),
            dtype=plan.dtype,
            max_length=plan.max_length,
            model_hash=model.fingerprint,
            data_hash=data.fingerprint,
            settings_hash=settings,
            missing=len(state.missing),
            condition=plan.stress.kind if plan.stress else "",
            level=float(plan.stress.level) if plan.stress else math.nan,
            **asdict(score(m, plan, state, model.width, finished)),
        )
        for m in plan.measurements(layer)
    )


def score(
    m: Measurement, plan: ScanPlan, state: ScanState, width: int, finished: dict[tuple[object, ...], object]
) -> Estimate:
    """The estimate of a measurement. Intermediate results shared by several metrics are cached in `finished`."""

    def finish(reading: Reading, function: Callable[[Any, RowTreatment], Any]) -> Any:
        key = (m.key(reading), m.rows, function)
        if key not in finished:
            finished[key] = function(
                state.accumulators.get(m.key(reading)) or make_accumulator(reading, width, plan.state), m.rows
            )
        return finished[key]

    estimate = as_table_row(require_estimate(m.metric, finish(m.reading, m.reading.finish), m.rows))
    if (interval_source := m.metric.interval_source) is None:
        return estimate
    sample = interval_source.reading(m.rows)
    size = len(getattr(state.accumulators.get(m.key(sample)), "keys", ()))
    finished_sample = finish(sample, interval_source.finish)
    # The sample's error is for a data set of the sample's size; rescale it to n examples.
    error, skewness_term = (
        x * math.sqrt(size / estimate.n) if estimate.n else math.nan
        for x in interval_source.uncertainty(finished_sample)
    )
    low, high = interval(estimate.value, error, interval_source.degrees_of_freedom or size - 1, skewness_term)
    warning = interval_source.warning(finished_sample) if math.isfinite(low) else ""
    return replace(estimate, ci_low=low, ci_high=high, note="; ".join(filter(None, [estimate.note, warning])))


def require_estimate(metric: Metric, finished: Any, rows: RowTreatment) -> Estimate:
    """The score of a metric; an error names it."""
    try:
        estimate = metric.score(finished, rows)
    except InputError as error:
        raise InputError(f"metric {metric.name}: {error}") from error
    if not isinstance(estimate, Estimate):
        raise InputError(f"metric {metric.name}: its score must return an Estimate, not a {type(estimate).__name__}")
    return estimate


def as_table_row(estimate: Estimate) -> Estimate:
    """The estimate, with the examples behind an undefined value counted as skipped: no number stands for them."""
    if not math.isnan(estimate.value):
        return estimate
    return replace(estimate, n=0, skipped=estimate.skipped + estimate.n)


def column_name(m: Measurement, column: str) -> str:
    """A column of a custom reading is named after the metric."""
    if m.reading.shared:
        return column
    return m.metric.name if len(m.reading.columns) == 1 else f"{m.metric.name}.{column}"


def prompt_table(plan: ScanPlan, prompts: PromptValues) -> bytes:
    """Per-prompt values as Parquet: id, digest, layer, norm, tokens, point, rows, metric, value."""
    import pyarrow as pa
    import torch

    ids, digests, parts = pa.array(prompts.ids, pa.string()), pa.array(prompts.digests, pa.int64()), []
    measurements = {m.key(m.reading): m for layer in plan.layers for m in plan.measurements(layer) if m.reading.columns}
    for key, m in measurements.items():
        if key not in prompts.values:
            continue  # no batch succeeded
        values = torch.cat(prompts.values[key]).double().numpy()  # (N, columns)
        for i, column in enumerate(m.reading.columns):
            constants = asdict(m.readout) | {"point": m.point, "rows": m.rows, "metric": column_name(m, column)}
            del constants["pooling"]  # these values come from tokens, not from pooled rows
            columns = {name: pa.array([value] * len(ids)) for name, value in constants.items()}
            parts.append(pa.table({"id": ids, "digest": digests, **columns, "value": values[:, i]}))
    return parquet_bytes(pa.concat_tables(parts) if parts else pa.table({"id": ids, "digest": digests}))

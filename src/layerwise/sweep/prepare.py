"""Turns options into a plan and a forecast, before any weights are loaded."""

import math
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.core.checks import split_words
from layerwise.core.errors import InputError
from layerwise.inputs.modalities import open_source, processor_for
from layerwise.inputs.perturbations.stress import Stress
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Source
from layerwise.models.layers import choose_layers
from layerwise.models.load import (
    DTYPES,
    LONGEST_DEFAULT,
    ModelSpec,
    Outline,
)
from layerwise.models.opening import longest, outline_and_dtype
from layerwise.options.scan import ScanOptions
from layerwise.sweep.forecast import Forecast, make_forecast
from layerwise.sweep.plan import ScanPlan, choose_metrics, with_state

COUNTED_AT_MOST = 20_000  # maximum number of examples counted; states do not grow beyond it
COUNTED_FOR_BAR = 1_000_000  # examples that are counted for a progress bar; beyond that it has no total
PEEKED_AT = 64  # number of examples used to estimate lengths


def prepare(
    model: Any,
    data: Any,
    options: ScanOptions,
    *,
    threads: int,
    stress: Stress | None = None,
) -> tuple[ScanPlan, Source, Outline]:
    """The plan, the data and the model info, before any weights are loaded."""
    reading_options = {name: getattr(options, name) for name in ("rows", "tokens", "norm")}
    reading_options["pooling"] = options.pooling or "mean"
    chosen = choose_metrics(options.metrics)
    outline, dtype = outline_and_dtype(model)
    require_stress(processor_for(outline.preprocessor), stress)
    parsed: Any = {name: split_words(name, value) for name, value in reading_options.items()}
    scan_plan = ScanPlan(
        metrics=chosen,
        layers=choose_layers(options.layers, outline.depth),
        depth=outline.depth,
        has_norm=outline.has_norm,
        max_length=longest(options.max_length, outline, at_most=LONGEST_DEFAULT),
        batch_tokens=options.batch_tokens,
        shard_size=options.shard_size,
        seed=options.seed,
        view_strength=options.view_strength,
        stress=stress,
        dtype=dtype,
        threads=threads,
        **parsed,
    )
    source = open_source(data)
    plan = with_state(scan_plan, options.state, outline.width, lambda: source.count(COUNTED_AT_MOST)[0])
    return plan, source, outline


def how_many(count: int, is_all: bool) -> str:
    """The number of examples for a line such as `reading 400 texts`; "" where it is not known."""
    return f"{count:,} " if is_all else ""


def require_stress(processor: Processor[Any], stress: Stress | None) -> None:
    """Raises if the processor does not support this kind of stress."""
    if stress is not None and stress.kind not in processor.stresses:
        supported = ", ".join(processor.stresses) or "none"
        raise InputError(
            f"{stress.kind} is no stress that the inputs of this model can be put under; there is {supported}"
        )


def forecast_of(model: Any, scan_plan: ScanPlan, source: Source, outline: Outline, *, loaded: bool = False) -> Forecast:
    """Estimates lengths from the first examples; weights that are already `loaded`, or loaded elsewhere, count as
    zero."""
    loaded = loaded or not isinstance(model, str | Path | ModelSpec)
    processor = processor_for(outline.preprocessor)
    # Invalid examples are reported when they are computed; they may be left out.
    valid = [example for example in islice(source, PEEKED_AT) if processor.size(example.payload) < math.inf]
    sizes = [prepared.sizes[0] for prepared in processor.prepare(valid, scan_plan.max_length)]
    prompts, is_complete = source.count(COUNTED_AT_MOST)
    return make_forecast(
        scan_plan,
        width=outline.width,
        parameters=outline.parameters,
        bytes_per_weight=0 if loaded else DTYPES[scan_plan.dtype].itemsize,
        prompts=prompts,
        and_more=not is_complete,
        mean_length=sum(sizes) / max(1, len(sizes)),
    )

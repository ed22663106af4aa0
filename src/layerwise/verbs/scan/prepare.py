"""Turns options into a plan and a forecast, before any weights are loaded."""

import heapq
import math
from itertools import islice
from pathlib import Path
from typing import Any

from layerwise.core.checks import split_choices
from layerwise.core.errors import InputError
from layerwise.inputs.modalities import kind_of, open_source, processor_for
from layerwise.inputs.perturbations.changes import Stress
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Example, Source
from layerwise.models.kept_states import IN_MEMORY, ON_DISK
from layerwise.models.layers import choose_layers
from layerwise.models.load import (
    DEFAULT_MAX_LENGTH,
    DTYPES,
    ModelInfo,
    ModelSpec,
)
from layerwise.models.opening import model_info_and_dtype, resolve_max_length
from layerwise.runs.summary import counted
from layerwise.verbs.scan.entropy_route import chosen_route
from layerwise.verbs.scan.forecast import Forecast, Streaming, make_forecast
from layerwise.verbs.scan.options import ScanSettings
from layerwise.verbs.scan.plan import ScanPlan, choose_metrics, with_state

MAX_COUNTED = 20_000  # maximum number of examples counted; states do not grow beyond it
COUNTED_FOR_BAR = 1_000_000  # examples that are counted for a progress bar; beyond that it has no total
LENGTH_SAMPLE = 64  # number of examples used to estimate lengths


def prepare(
    options: ScanSettings, *, threads: int, stress: Stress | None = None, out: str | Path | None = None
) -> tuple[ScanPlan, Source, ModelInfo]:
    """The plan, the data and the model info, before any weights are loaded. An interrupted run in `out` is gone on
    with as it began."""
    reading_options = {name: getattr(options, name) for name in ("rows", "tokens", "norm")}
    reading_options["pooling"] = options.pooling or "mean"
    chosen = choose_metrics(options.metrics)
    info, dtype = model_info_and_dtype(options.model)
    require_stress(processor_for(info.preprocessor), stress)
    max_length = resolve_max_length(options.max_length, info, default_limit=DEFAULT_MAX_LENGTH)
    parsed: Any = {name: split_choices(name, value) for name, value in reading_options.items()}
    scan_plan = ScanPlan(
        metrics=chosen,
        layers=choose_layers(options.layers, info.depth),
        depth=info.depth,
        has_norm=info.has_norm,
        max_length=max_length,
        batch_tokens=options.batch_tokens,
        shard_size=options.shard_size,
        seed=options.seed,
        view_strength=options.view_strength,
        stress=stress,
        points=info.structure.require_layout().point_names if options.inside else (),
        dtype=dtype,
        entropy=chosen_route(options.entropy, options.model, min(max_length, info.width), out),
        threads=threads,
        **parsed,
    )
    source = open_source(options.data, kind_of(info.preprocessor))
    plan = with_state(scan_plan, options.state, info.width, lambda: source.count(MAX_COUNTED)[0])
    return plan, source, info


def count_for_bar(source: Source, progress: bool) -> int | None:
    """How many examples a progress bar goes through; None where that is not known, or nobody looks."""
    count, is_all = source.count(COUNTED_FOR_BAR) if progress else (0, False)
    return count if is_all else None


def reading_line(source: Source, count: int | None) -> str:
    """`reading 400 texts from demo`, or without the number where it is not known."""
    return f"reading {f'{source.unit}s' if count is None else counted(count, source.unit)} from {source.name}"


def require_stress(processor: Processor[Any], stress: Stress | None) -> None:
    """Raises if the processor does not support this kind of stress."""
    if stress is not None and stress.kind not in processor.stress_kinds:
        supported = ", ".join(processor.stress_kinds) or "none"
        raise InputError(f"this model's inputs do not support the stress {stress.kind}; supported: {supported}")


def typical_examples(source: Source, count: int) -> list[Example]:
    """A random sample of those that are counted; of remote data the first, since each must be downloaded."""
    if source.remote:
        return list(islice(source, count))
    return heapq.nsmallest(count, islice(source, MAX_COUNTED), key=lambda example: example.key)


def forecast_scan(
    model: Any, scan_plan: ScanPlan, source: Source, info: ModelInfo, *, loaded: bool = False
) -> Forecast:
    """Estimates lengths from a sample of examples; weights that are already `loaded`, or loaded elsewhere, count as
    zero."""
    loaded = loaded or not isinstance(model, str | Path | ModelSpec)
    processor = processor_for(info.preprocessor)
    # Invalid examples are reported when they are computed; they may be left out.
    sample = typical_examples(source, LENGTH_SAMPLE)
    valid = [example for example in sample if processor.size(example.payload) < math.inf]
    sizes = [prepared.sizes[0] for prepared in processor.prepare(valid, scan_plan.max_length)]
    prompts, is_complete = source.count(MAX_COUNTED)
    mean_length = sum(sizes) / max(1, len(sizes))
    weight_size = DTYPES[scan_plan.dtype].itemsize
    weight_bytes = 0 if loaded else info.quantized_bytes or info.parameters * weight_size
    streaming = None
    if isinstance(model, ModelSpec) and model.stream:
        weight_bytes, streaming = streaming_of(scan_plan, info, weight_size, prompts, mean_length)
    return make_forecast(
        scan_plan,
        width=info.width,
        parameters=info.parameters,
        weight_bytes=weight_bytes,
        prompts=prompts,
        is_partial=not is_complete,
        mean_length=mean_length,
        streaming=streaming,
    )


def streaming_of(
    scan_plan: ScanPlan, info: ModelInfo, weight_size: int, prompts: int, mean_length: float
) -> tuple[int, Streaming]:
    """The bytes of weights that are in memory at a time, and what is read and kept."""
    blocks = [sum(weight.numel() for weight in block.parameters()) for block in info.structure.blocks]
    in_shard = min(prompts, scan_plan.shard_size) * (1 + scan_plan.views) * mean_length * info.width * weight_size
    rounds = math.ceil(in_shard / (IN_MEMORY + ON_DISK))
    kept = min(in_shard, IN_MEMORY)
    streaming = Streaming(
        block_bytes=sum(blocks[: max(scan_plan.layers)]) * weight_size,
        reads=rounds * math.ceil(prompts / scan_plan.shard_size),
        kept_bytes=round(kept),
        scratch_bytes=round(min(in_shard, IN_MEMORY + ON_DISK) - kept),
    )
    return (info.parameters - sum(blocks) + max(blocks)) * weight_size, streaming

"""stress: every layer on prompts made more and more extreme."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerwise.core.checks import (
    require_options,
    require_word,
)
from layerwise.core.errors import InputError
from layerwise.core.files import open_folder
from layerwise.core.progress import progress_bar
from layerwise.engines.opening import open_engine, threads_of
from layerwise.engines.ray import Cluster
from layerwise.inputs.modalities import open_source, processor_for
from layerwise.inputs.perturbations.stress import KINDS, Stress
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Source
from layerwise.metrics.base import Metric
from layerwise.models.opening import longest, outline_and_dtype
from layerwise.runs.claims import claim, require_usable
from layerwise.runs.table import LayerTable
from layerwise.sweep.prepare import prepare
from layerwise.sweep.run import run_scan


def stress(
    model: Any,
    data: Any = "demo",
    *,
    kind: str,
    levels: Sequence[float] | None = None,
    metrics: str | Sequence[str | Metric] = "prompt_entropy,prompt_entropy_normalized",
    out: str | Path | None = None,
    threads: int | None = None,
    allow_missing: int = 0,
    engine: str | Cluster = "local",
    progress: bool = False,
    **options: Any,
) -> LayerTable:
    """Every layer on prompts made more and more extreme, token by token: repetition, random tokens, length.

    `kind` is repeat_one, repeat_any, random, length (the first tokens of texts that are long enough for every
    level) or random_length. The rows say kind and level in `condition` and `level`.
    """
    require_word("kind", kind, KINDS)
    require_options(threads=threads, allow_missing=allow_missing)
    (outline, _), source = outline_and_dtype(model), open_source(data)
    share = KINDS[kind].of == "share"
    tried = tuple(levels or [x for x in KINDS[kind].levels if share or x <= outline.max_length])
    if kind == "length":
        tried, source = lengths_that_fit(processor_for(outline.preprocessor), source, tried, asked=levels is not None)
    if not share:
        options["max_length"] = longest(int(max(tried)), outline)
    options["threads"] = threads or threads_of(engine)
    tables = []
    place = None if out is None else open_folder(out)
    if place is not None:
        require_usable(place, "stress", stress=kind)
    with open_engine(engine, model, out) as opened:
        if place is not None:
            claim(place, "stress", stress=kind, model=opened.identity.fingerprint)
        for level in tried:
            scan_plan, source, _ = prepare(model, source, metrics=metrics, stress=Stress(kind, level), **options)
            folder = None if out is None else open_folder(out, f"{kind}-{level:g}")
            with progress_bar(progress) as on_batch:
                tables.append(
                    run_scan(opened, scan_plan, source, out=folder, allow_missing=allow_missing, on_batch=on_batch)
                )
    table = LayerTable.join(tables)
    if place is not None:
        table.save(place)
    return table


def lengths_that_fit(
    processor: Processor[Any], source: Source, levels: Sequence[float], *, asked: bool
) -> tuple[tuple[float, ...], Source]:
    """The examples long enough for every level; of levels that nobody asked for, those that half of them reach."""
    lengths = sorted(n for example in source if (n := processor.size(example.payload)) < math.inf) or [0]
    if not asked:
        levels = [level for level in levels if level <= lengths[len(lengths) // 2]]
    if not levels or max(levels) > lengths[-1]:
        raise InputError(f"no {source.unit} is that long: the longest has {lengths[-1]} tokens; pass shorter --levels")
    most = max(levels)
    return tuple(levels), source.where(lambda payload: processor.size(payload) >= most, f">= {most:g} tokens")

"""stress: scan increasingly distorted prompts."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from layerwise.core.errors import InputError
from layerwise.core.files import open_folder
from layerwise.core.options import takes
from layerwise.core.progress import GO_ON, announce, announcements
from layerwise.engines.opening import default_threads, open_engine
from layerwise.inputs.modalities import kind_of, open_source, processor_for
from layerwise.inputs.perturbations.changes import STRESS_SCALES, Stress
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import Source
from layerwise.models.opening import model_info_and_dtype, resolve_max_length
from layerwise.models.spec import call_record
from layerwise.runs.leases import sole_writer
from layerwise.runs.ownership import claim, require_usable
from layerwise.runs.table import LayerTable
from layerwise.verbs.lab.stress.options import StressOptions, parse_levels
from layerwise.verbs.scan.execute import execute
from layerwise.verbs.scan.prepare import count_for_bar, forecast_scan, prepare, reading_line


@takes(StressOptions)
def stress(options: StressOptions) -> LayerTable:
    """Measures every layer on texts that are made more and more extreme, token by token.

    Returns:
        A LayerTable whose rows name the kind in `condition` and the level in `level`.

    Raises:
        InputError: an option or the data cannot be used, such as a level that no text is long enough for.
        ModelError: the model cannot be loaded, or its layers cannot be found.
        RunError: `out` holds another run.
        TooLarge: the scan of a level would not fit into memory.

    Example:
        >>> table = layerwise.lab.stress(model, texts, kind="repeat_one", levels=[0, 1])
        >>> sorted({row.level for row in table})
        [0.0, 1.0]
    """
    with announcements(options.progress):
        return run_stress(options)


def run_stress(options: StressOptions) -> LayerTable:
    """One scan per level, and their tables joined."""
    model, kind, engine, out = options.model, options.kind, options.engine, options.out
    info, _ = model_info_and_dtype(model)
    source = open_source(options.data, kind_of(info.preprocessor))
    requested_levels, is_share = parse_levels("levels", options.levels), STRESS_SCALES[kind].unit == "share"
    levels = tuple(requested_levels or [x for x in STRESS_SCALES[kind].levels if is_share or x <= info.max_length])
    if kind == "length":
        levels, source = feasible_lengths(
            processor_for(info.preprocessor), source, levels, requested=bool(requested_levels)
        )
    settings = replace(options.scan_settings(), data=source)
    if not is_share:
        if max(levels) < 2:
            largest = f"the largest must be at least 2, not {max(levels):g}"
            raise InputError(f"levels of {kind} are lengths in tokens: {largest}")
        settings = replace(settings, max_length=resolve_max_length(int(max(levels)), info))
    record = call_record("stress", options, source.options)
    tables: list[LayerTable] = []
    count = count_for_bar(source, options.progress)
    out_folder = None if out is None else open_folder(out)
    if out_folder is not None:
        require_usable(out_folder, "stress", stress=kind)
    threads = options.threads or default_threads(engine)
    plans = {level: prepare(settings, threads=threads, stress=Stress(kind, level)) for level in levels}
    for scan_plan, source, info in plans.values():  # before weights are loaded
        forecast_scan(model, scan_plan, source, info, loaded=engine != "local").require_fit()
    with ExitStack() as stack:
        opened = stack.enter_context(open_engine(engine, model, out))
        if out_folder is not None:
            claim(out_folder, "stress", stress=kind, model=opened.identity.fingerprint)
        require_lease = stack.enter_context(sole_writer(out_folder))
        for level, (scan_plan, source, _) in plans.items():
            folder = None if out is None else open_folder(out, f"{kind}-{level:g}")
            try:
                table = execute(
                    model,
                    scan_plan,
                    source,
                    engine=opened,
                    folder=folder,
                    require_lease=require_lease,
                    on_start=partial(announce, f"{reading_line(source, count)}: {kind} {level:g}"),
                    progress=options.progress,
                    count=count,
                    allow_missing=options.allow_missing,
                    options=record,
                )
            except KeyboardInterrupt as stopped:
                if tables and out is not None:  # earlier levels are kept, whatever became of this one
                    stopped.add_note(GO_ON)
                raise
            tables.append(table)
        table = LayerTable.join(tables)
        if out_folder is not None:
            table.save(out_folder)
    return table


def feasible_lengths(
    processor: Processor[Any], source: Source, levels: Sequence[float], *, requested: bool
) -> tuple[tuple[float, ...], Source]:
    """The examples that are long enough for every level; default levels are limited to those that half of the examples
    reach."""
    lengths = sorted(n for example in source if (n := processor.size(example.payload)) < math.inf) or [0]
    if not requested:
        levels = [level for level in levels if level <= lengths[len(lengths) // 2]]
    if not levels or max(levels) > lengths[-1]:
        raise InputError(
            f"no {source.unit} is long enough: the longest has {lengths[-1]} tokens; pass smaller --levels"
        )
    max_level = max(levels)
    return tuple(levels), source.filter(
        lambda payload: processor.size(payload) >= max_level, f">= {max_level:g} tokens"
    )

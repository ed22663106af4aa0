"""scan: all metrics of all layers in one pass; plan: its cost."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.core.files import Folder, open_folder
from layerwise.core.options import takes
from layerwise.core.progress import announce, announcements
from layerwise.engines.opening import default_threads
from layerwise.inputs.source import Source
from layerwise.models.families.family import PARALLEL_NOTE, are_parallel
from layerwise.models.load import identity_from_files
from layerwise.models.opening import open_network, to_model_spec
from layerwise.models.spec import ModelLike, ModelSpec, call_record
from layerwise.runs.ownership import require_usable
from layerwise.runs.result import RUN_FILE
from layerwise.runs.table import LayerTable
from layerwise.verbs.scan.execute import execute
from layerwise.verbs.scan.forecast import Forecast
from layerwise.verbs.scan.options import PlanOptions, ScanOptions
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.prepare import count_for_bar, forecast_scan, prepare, reading_line
from layerwise.verbs.scan.shards import finished_table
from layerwise.verbs.scan.timing import Seconds, predict_seconds


@takes(ScanOptions)
def scan(options: ScanOptions) -> LayerTable:
    """Measures every layer of a model on your texts, in one pass over them.

    Returns:
        A LayerTable with one row per layer, metric and setting. It prints as a summary; `to_pandas()` has all columns,
        `run` the record of how it was made.

    Raises:
        InputError: an option or the data cannot be used.
        ModelError: the model cannot be loaded, or its layers cannot be found.
        RunError: `out` holds another run.
        TooLarge: the scan would not fit into memory.

    Example:
        >>> table = layerwise.scan(model, texts, metrics="curvature", out=folder / "run")
        >>> len(table.where(metric="curvature", norm="raw")) == table.model.depth + 1
        True
        >>> sorted(table.to_pandas().columns)[:3]
        ['ci_high', 'ci_low', 'condition']
    """
    with announcements(options.progress):
        threads = options.threads or default_threads(options.engine)
        scan_plan, source, info = prepare(options, threads=threads, out=options.out)
        folder = None if options.out is None else open_folder(options.out)
        if folder is not None and require_usable(folder, "scan"):
            if (done := finished(folder, options.model, scan_plan, source, options.allow_missing)) is not None:
                announce(f"already complete, read from {options.out}")
                return done
        count = count_for_bar(source, options.progress)
        return execute(
            options.model,
            scan_plan,
            source,
            engine=options.engine,
            info=info,
            folder=folder,
            on_start=partial(announce_start, scan_plan, source, count),
            progress=options.progress,
            count=count,
            keep_prompts=options.keep_prompts,
            allow_missing=options.allow_missing,
            options=call_record("scan", options, source.options),
        )


def announce_start(scan_plan: ScanPlan, source: Source, count: int | None) -> None:
    """Says what is read."""
    if are_parallel(scan_plan.points):
        announce(PARALLEL_NOTE)
    announce(reading_line(source, count))


def timed_plan(options: ScanOptions) -> Seconds:
    """How long the scan would take on this machine, from timing a few batches. Loads the model."""
    scan_plan, source, info = prepare(options, threads=options.threads or default_threads("local"))
    return timed_scan(options.model, scan_plan, source, forecast_scan(options.model, scan_plan, source, info))


def timed_scan(model: ModelLike, scan_plan: ScanPlan, source: Source, forecast: Forecast) -> Seconds:
    """Loads the model, if it fits into memory, and times a few batches."""
    forecast.require_fit()
    network = open_network(model, states_only=True)
    announce("timing a few batches")
    return predict_seconds(network, scan_plan, source, forecast)


def finished(
    folder: Folder, model: ModelLike, scan_plan: ScanPlan, source: Source, allow_missing: int
) -> LayerTable | None:
    """The table of a complete scan, without loading the model; None where there is none, or only loading can tell."""
    if not isinstance(model, str | Path | ModelSpec) or folder.read(RUN_FILE) is None:
        return None
    identity = identity_from_files(to_model_spec(model))
    return (
        None if identity is None else finished_table(folder, scan_plan, source, identity, allow_missing=allow_missing)
    )


@takes(PlanOptions)
def plan(options: PlanOptions) -> Forecast:
    """Estimates what `scan` with the same settings would take. No weight is loaded, unless it is `timed`.

    Returns:
        A Forecast: prompts, forward passes, tokens, floating-point operations, bytes and, if timed, seconds. `lines()`
        is its text.

    Raises:
        InputError: an option or the data cannot be used.
        ModelError: the model's config or tokenizer cannot be loaded.
        TooLarge: it is to be timed, and would not fit into memory.

    Example:
        >>> layerwise.plan(model, texts).forwards
        40
        >>> layerwise.plan(model, texts, timed=True).seconds > 0
        True
    """
    scan_plan, source, info = prepare(options, threads=default_threads("local"))
    forecast = forecast_scan(options.model, scan_plan, source, info)
    if not options.timed:
        return forecast
    return replace(forecast, seconds=timed_scan(options.model, scan_plan, source, forecast).total)

"""stress: scan increasingly distorted prompts."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.core.checks import Choices
from layerwise.core.errors import InputError
from layerwise.core.files import open_folder
from layerwise.core.progress import GO_ON, announce, announcements
from layerwise.engines.opening import default_threads, open_engine
from layerwise.engines.options import Cluster, EngineChoice
from layerwise.inputs.modalities import kind_of, open_source, processor_for
from layerwise.inputs.perturbations.stress import STRESS_SCALES, Stress
from layerwise.inputs.processor import Processor
from layerwise.inputs.source import DataLike, Source
from layerwise.metrics.base import Metric
from layerwise.models.opening import model_info_and_dtype, resolve_max_length
from layerwise.models.spec import LayerChoice, ModelLike, call_record
from layerwise.runs.claims import claim, require_usable
from layerwise.runs.leases import sole_writer
from layerwise.runs.table import LayerTable
from layerwise.verbs.lab.stress.options import Levels, StressKind, StressOptions, parse_levels
from layerwise.verbs.scan.execute import execute
from layerwise.verbs.scan.options import EntropyChoice
from layerwise.verbs.scan.prepare import count_for_bar, forecast_scan, prepare, reading_line


def stress(
    model: ModelLike,
    data: DataLike = "demo",
    *,
    kind: StressKind,
    levels: Levels = None,
    out: str | Path | None = None,
    metrics: str | Sequence[str | Metric] = "prompt_entropy,prompt_entropy_normalized",
    rows: Choices = "raw",
    layers: LayerChoice = "all",
    norm: Choices = "raw",
    tokens: Choices = "all",
    pooling: Choices | None = "mean",
    max_length: int | None = None,
    batch_tokens: int = 4096,
    shard_size: int = 1024,
    seed: int = 0,
    state: str = "auto",
    entropy: EntropyChoice = "auto",
    engine: EngineChoice | Cluster = "local",
    threads: int | None = None,
    allow_missing: int = 0,
    progress: bool = False,
) -> LayerTable:
    """Measures every layer on texts that are made more and more extreme, token by token.

    Args:
        model: a hub id, a folder, a ModelSpec (which also sets dtype, device and revision), a transformers model, a
            SentenceTransformer, or a pair (module, tokenizer).
        data: a list of texts, a .txt, .jsonl, .csv or .parquet file, a hub data set, `texts(...)` with options, or
            `demo`, 200 bundled texts.
        kind: repeat_one (one token repeated), repeat_any (tokens of the text), random (random tokens), length (the
            first tokens of texts that are long enough for every level) or random_length (random tokens only).
        levels: shares such as "0,0.5,1", or lengths in tokens such as "16,64,256"; also a list of numbers. None for
            those of the paper that the model takes.
        out: a folder or url for one run per level and the joined table; the same call resumes it. None saves nothing.
        metrics: names with commas, or Metric objects; those that need views are refused.
        rows: what is done to rows before a metric: raw, unit, centered, centered_unit, or several with commas.
        layers: `all`, numbers such as "0,6,12", depths such as "25%,50%", or `last`.
        norm: raw (hidden states as they are) or normed (after the final norm). The last layer is read both ways.
        tokens: which tokens count: all, no_first, no_special or no_sinks.
        pooling: how tokens become one vector per text: mean, last, first or max.
        max_length: longest input in tokens; the kinds that set a length set it themselves.
        batch_tokens: tokens in a batch, padding included. Larger is faster and needs more memory.
        shard_size: texts in a shard. An interrupted run resumes after its last whole shard.
        seed: seed of samples and views.
        state: how sums over all texts are kept: exact, float32, sketch:512, or auto, the most exact that takes no more
            than eight gigabytes.
        entropy: how prompt entropy is computed: exact (eigenvalues), products (matrix products alone, within 0.001
            nats, for GPUs), or auto, the faster one on the model's device; on a CPU that is exact.
        engine: local, or ray for many processes or nodes; also a Cluster with its size. The numbers are the same.
        threads: threads per process; None for as many as torch uses. Sums depend on them in the last bits.
        allow_missing: how many texts that cannot be computed may be left out; every row says how many were.
        progress: show a progress bar and what is being done, on standard error.

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
    options = StressOptions(
        kind=kind,
        levels=levels,
        out=out,
        metrics=metrics,
        rows=rows,
        layers=layers,
        norm=norm,
        tokens=tokens,
        pooling=pooling,
        max_length=max_length,
        batch_tokens=batch_tokens,
        shard_size=shard_size,
        seed=seed,
        state=state,
        entropy=entropy,
        engine=engine,
        threads=threads,
        allow_missing=allow_missing,
        progress=progress,
    )
    with announcements(progress):
        return run_stress(model, data, options)


def run_stress(model: ModelLike, data: DataLike, options: StressOptions) -> LayerTable:
    """One scan per level, and their tables joined."""
    kind, engine, out = options.kind, options.engine, options.out
    info, _ = model_info_and_dtype(model)
    source = open_source(data, kind_of(info.preprocessor))
    requested_levels, is_share = parse_levels("levels", options.levels), STRESS_SCALES[kind].unit == "share"
    levels = tuple(requested_levels or [x for x in STRESS_SCALES[kind].levels if is_share or x <= info.max_length])
    if kind == "length":
        levels, source = feasible_lengths(
            processor_for(info.preprocessor), source, levels, requested=bool(requested_levels)
        )
    settings = options.scan_options()
    if not is_share:
        if max(levels) < 2:
            largest = f"the largest must be at least 2, not {max(levels):g}"
            raise InputError(f"levels of {kind} are lengths in tokens: {largest}")
        settings = replace(settings, max_length=resolve_max_length(int(max(levels)), info))
    record = call_record("stress", options, model=model, data=source.options)
    tables: list[LayerTable] = []
    count = count_for_bar(source, options.progress)
    out_folder = None if out is None else open_folder(out)
    if out_folder is not None:
        require_usable(out_folder, "stress", stress=kind)
    threads = options.threads or default_threads(engine)
    plans = {level: prepare(model, source, settings, threads=threads, stress=Stress(kind, level)) for level in levels}
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

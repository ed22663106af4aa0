"""scan: all metrics of all layers in one pass; plan: its cost."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from layerwise.core.checks import Choices
from layerwise.core.files import Folder, open_folder
from layerwise.core.progress import announce, announcements
from layerwise.engines.opening import default_threads
from layerwise.engines.options import Cluster, EngineChoice
from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH
from layerwise.inputs.source import DataLike, Source
from layerwise.metrics.base import Metric
from layerwise.models.families.family import PARALLEL_NOTE, are_parallel
from layerwise.models.load import identity_from_files
from layerwise.models.opening import open_network, to_model_spec
from layerwise.models.spec import LayerChoice, ModelLike, ModelSpec, call_record
from layerwise.runs.claims import require_usable
from layerwise.runs.result import RUN_FILE
from layerwise.runs.table import LayerTable
from layerwise.verbs.scan.execute import execute
from layerwise.verbs.scan.forecast import Forecast
from layerwise.verbs.scan.options import EntropyChoice, KeepPrompts, ScanOptions
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.prepare import count_for_bar, forecast_scan, prepare, reading_line
from layerwise.verbs.scan.run import finished_table
from layerwise.verbs.scan.timing import Seconds, predict_seconds


def scan(
    model: ModelLike,
    data: DataLike = "demo",
    *,
    out: str | Path | None = None,
    metrics: str | Sequence[str | Metric] = "fast",
    rows: Choices = "raw",
    layers: LayerChoice = "all",
    inside: bool = False,
    norm: Choices = "raw",
    tokens: Choices = "all",
    pooling: Choices | None = "mean",
    max_length: int | None = None,
    batch_tokens: int = 4096,
    shard_size: int = 1024,
    seed: int = 0,
    view_strength: float = DEFAULT_STRENGTH,
    state: str = "auto",
    entropy: EntropyChoice = "auto",
    keep_prompts: KeepPrompts = "auto",
    engine: EngineChoice | Cluster = "local",
    threads: int | None = None,
    allow_missing: int = 0,
    progress: bool = False,
) -> LayerTable:
    """Measures every layer of a model on your texts, in one pass over them.

    Args:
        model: a hub id, a folder, a ModelSpec (which also sets dtype, device and revision), a transformers model, a
            SentenceTransformer, or a pair (module, tokenizer).
        data: a list of texts, a .txt, .jsonl, .csv or .parquet file, a hub data set, `texts(...)` with options, or
            `demo`, 200 bundled texts. For an audio model: a folder of audio files, a table or hub data set with a
            column `audio`, a list of files or of pairs (samples, rate), or `audio(...)` with options. For an image
            model: a folder of images, a table or hub data set with a column `image`, a list of files or of arrays, or
            `images(...)` with options.
        out: a folder or a url such as s3://bucket/run to save the run in. The same call resumes an interrupted run
            there, and reads a finished one without loading the model. None saves nothing.
        metrics: `fast` (those that need one pass per text), `all`, names with commas, or Metric objects.
        rows: what is done to rows before a metric: raw, unit, centered, centered_unit, or several with commas.
        layers: `all`, numbers such as "0,6,12", depths such as "25%,50%", or `last`.
        inside: also measure the points inside each block, such as the output of attention (docs/inside.md).
        norm: raw (hidden states as they are) or normed (after the final norm). The last layer is read both ways.
        tokens: which tokens count: all, no_first, no_special, no_sinks, or with_padding (audio models of fixed length).
        pooling: how tokens become one vector per text: mean, last, first or max.
        max_length: longest input in tokens, or frames of audio; None for 512, or less where the model takes less.
        batch_tokens: tokens in a batch, padding included. Larger is faster and needs more memory.
        shard_size: texts in a shard. An interrupted run resumes after its last whole shard.
        seed: seed of samples and views.
        view_strength: share of words and letters that the views of a text change, above 0 and up to 1; for audio and
            images see docs/audio.md and docs/images.md.
        state: how sums over all texts are kept: exact, float32, sketch:512, or auto, the most exact that takes no more
            than eight gigabytes.
        entropy: how prompt entropy is computed: exact (eigenvalues), products (matrix products alone, within 0.001
            nats, for GPUs), or auto, the faster one on the model's device; on a CPU that is exact.
        keep_prompts: whose own numbers `out` keeps: auto (the first 100,000 texts), all or none.
        engine: local, or ray for many processes or nodes; also a Cluster with its size. The numbers are the same.
        threads: threads per process; None for as many as torch uses. Sums depend on them in the last bits.
        allow_missing: how many texts that cannot be computed may be left out; every row says how many were.
        progress: show a progress bar and what is being done, on standard error.

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
    options = ScanOptions(
        out=out,
        metrics=metrics,
        rows=rows,
        layers=layers,
        inside=inside,
        norm=norm,
        tokens=tokens,
        pooling=pooling,
        max_length=max_length,
        batch_tokens=batch_tokens,
        shard_size=shard_size,
        seed=seed,
        view_strength=view_strength,
        state=state,
        entropy=entropy,
        keep_prompts=keep_prompts,
        engine=engine,
        threads=threads,
        allow_missing=allow_missing,
        progress=progress,
    )
    with announcements(progress):
        scan_plan, source, info = prepare(model, data, options, threads=threads or default_threads(engine))
        folder = None if out is None else open_folder(out)
        if folder is not None and require_usable(folder, "scan"):
            if (done := finished(folder, model, scan_plan, source, allow_missing)) is not None:
                announce(f"already complete, read from {out}")
                return done
        count = count_for_bar(source, progress)
        return execute(
            model,
            scan_plan,
            source,
            engine=engine,
            info=info,
            folder=folder,
            on_start=partial(announce_start, scan_plan, source, count),
            progress=progress,
            count=count,
            keep_prompts=keep_prompts,
            allow_missing=allow_missing,
            options=call_record("scan", options, model=model, data=source.options),
        )


def announce_start(scan_plan: ScanPlan, source: Source, count: int | None) -> None:
    """Says what is read."""
    if are_parallel(scan_plan.points):
        announce(PARALLEL_NOTE)
    announce(reading_line(source, count))


def timed_plan(model: ModelLike, data: DataLike, options: ScanOptions) -> Seconds:
    """How long the scan would take on this machine, from timing a few batches. Loads the model."""
    scan_plan, source, info = prepare(model, data, options, threads=options.threads or default_threads("local"))
    return timed_scan(model, scan_plan, source, forecast_scan(model, scan_plan, source, info))


def timed_scan(model: ModelLike, scan_plan: ScanPlan, source: Source, forecast: Forecast) -> Seconds:
    """Loads the model, if it fits into memory, and times a few batches."""
    forecast.require_fit()
    network = open_network(model)
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


def plan(
    model: ModelLike,
    data: DataLike = "demo",
    *,
    metrics: str | Sequence[str | Metric] = "fast",
    rows: Choices = "raw",
    layers: LayerChoice = "all",
    inside: bool = False,
    norm: Choices = "raw",
    tokens: Choices = "all",
    pooling: Choices | None = "mean",
    max_length: int | None = None,
    batch_tokens: int = 4096,
    shard_size: int = 1024,
    seed: int = 0,
    view_strength: float = DEFAULT_STRENGTH,
    state: str = "auto",
    entropy: EntropyChoice = "auto",
    timed: bool = False,
) -> Forecast:
    """Estimates what `scan` with the same settings would take. No weight is loaded, unless it is `timed`.

    Args:
        model: a hub id, a folder, a ModelSpec (which also sets dtype, device and revision), a transformers model, a
            SentenceTransformer, or a pair (module, tokenizer).
        data: a list of texts, a .txt, .jsonl, .csv or .parquet file, a hub data set, `texts(...)` with options, or
            `demo`, 200 bundled texts. For an audio model: a folder of audio files, a table or hub data set with a
            column `audio`, a list of files or of pairs (samples, rate), or `audio(...)` with options. For an image
            model: a folder of images, a table or hub data set with a column `image`, a list of files or of arrays, or
            `images(...)` with options.
        metrics: as in `scan`.
        rows: what is done to rows before a metric: raw, unit, centered, centered_unit, or several with commas.
        layers: `all`, numbers such as "0,6,12", depths such as "25%,50%", or `last`.
        inside: also measure the points inside each block, such as the output of attention (docs/inside.md).
        norm: raw (hidden states as they are) or normed (after the final norm). The last layer is read both ways.
        tokens: which tokens count: all, no_first, no_special, no_sinks, or with_padding (audio models of fixed length).
        pooling: how tokens become one vector per text: mean, last, first or max.
        max_length: longest input in tokens, or frames of audio; None for 512, or less where the model takes less.
        batch_tokens: tokens in a batch, padding included. Larger is faster and needs more memory.
        shard_size: texts in a shard. An interrupted run resumes after its last whole shard.
        seed: seed of samples and views.
        view_strength: share of words and letters that the views of a text change.
        state: how sums over all texts are kept: exact, float32, sketch:512, or auto, the most exact that takes no more
            than eight gigabytes.
        entropy: how prompt entropy is computed: exact (eigenvalues), products (matrix products alone, within 0.001
            nats, for GPUs), or auto, the faster one on the model's device; on a CPU that is exact.
        timed: load the model, time a few batches, and predict the seconds as well.

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
    options = ScanOptions(
        metrics=metrics,
        rows=rows,
        layers=layers,
        inside=inside,
        norm=norm,
        tokens=tokens,
        pooling=pooling,
        max_length=max_length,
        batch_tokens=batch_tokens,
        shard_size=shard_size,
        seed=seed,
        view_strength=view_strength,
        state=state,
        entropy=entropy,
    )
    scan_plan, source, info = prepare(model, data, options, threads=default_threads("local"))
    forecast = forecast_scan(model, scan_plan, source, info)
    return replace(forecast, seconds=timed_scan(model, scan_plan, source, forecast).total) if timed else forecast

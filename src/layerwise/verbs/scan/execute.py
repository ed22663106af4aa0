"""execute: carries out a planned scan, for scan, stress, campaign and the callbacks of a training."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from layerwise.core.files import Folder
from layerwise.core.progress import progress_bar
from layerwise.engines.checkpoints import Checkpoint
from layerwise.engines.engine import Engine
from layerwise.engines.opening import open_engine
from layerwise.engines.options import Cluster, ScanEngineChoice, Vllm
from layerwise.engines.shards import ProgressCallback, torch_threads
from layerwise.inputs.source import Source, shards
from layerwise.models.info import ModelInfo
from layerwise.runs.identity import DataRef, ModelRef
from layerwise.runs.leases import sole_writer, while_held
from layerwise.runs.ownership import claim
from layerwise.runs.table import LayerTable
from layerwise.verbs.scan.options import KeepPrompts
from layerwise.verbs.scan.plan import ScanPlan
from layerwise.verbs.scan.prepare import forecast_scan
from layerwise.verbs.scan.rows import layer_scores
from layerwise.verbs.scan.shards import (
    ScanShardFunction,
    claim_plan,
    origin_of,
    parse_state_of_scan,
    prompt_limit,
    provenance,
    what_was_kept,
)

SECONDS_BETWEEN_CHECKPOINTS = 30.0


def execute(
    model: Any,
    plan: ScanPlan,
    source: Source,
    *,
    engine: ScanEngineChoice | Cluster | Vllm | Engine,
    info: ModelInfo | None = None,
    folder: Folder | None = None,
    require_lease: Callable[[], None] | None = None,
    on_start: Callable[[], object] = lambda: None,
    on_batch: ProgressCallback | None = None,
    progress: bool = False,
    count: int | None = None,
    keep_prompts: KeepPrompts = "auto",
    allow_missing: int = 0,
    options: Mapping[str, Any] | None = None,
) -> LayerTable:
    """Runs a scan and returns its table; with a folder, it also writes a run there that can be resumed and reopened.

    Args:
        model: what the engine loads.
        plan: what to measure, from `prepare`.
        source: the data.
        engine: an engine to open for this scan, or an open one that runs several.
        info: what the memory check needs to know of the model; None if memory was checked before.
        folder: where the run is written; None for nowhere.
        require_lease: raises if this process no longer holds the folder; None takes a lease for this scan.
        on_start: called once the scan can begin: memory suffices, and the model is loaded.
        on_batch: called with the examples and tokens of each batch; None shows a progress bar if `progress` is set.
        progress: whether a bar is shown.
        count: the number of examples, where it is known.
        keep_prompts: whose own numbers the folder keeps.
        allow_missing: how many examples that cannot be computed may be left out.
        options: the options of the call as JSON, for the record.
    """
    if info is not None:
        forecast_scan(model, plan, source, info, loaded=engine != "local").require_fit()
    with ExitStack() as stack:
        if isinstance(engine, str | Cluster | Vllm):
            opened = stack.enter_context(open_engine(engine, model, None if folder is None else str(folder)))
        else:
            opened = engine
        on_start()
        if folder is not None:
            claim(folder, "scan")
        held = require_lease or stack.enter_context(sole_writer(folder))
        on_batch = on_batch or stack.enter_context(progress_bar(progress, count, f"{source.unit}s"))
        start_time, identity = time.monotonic(), opened.identity
        origin = origin_of(plan, identity)
        if folder is not None:
            claim_plan(folder, plan_record(plan, source, identity, origin), plan.unknown_metrics())
        shard_count = None if count is None else math.ceil(count / plan.shard_size)
        blank_rows: list[None] = []
        # Also for merging and scoring, so that the table is reproducible bit by bit.
        stack.enter_context(torch_threads(plan.threads))
        try:
            state = opened.run_shards(
                shards(source.examples(partial(blank_rows.append, None)), plan.shard_size),
                ScanShardFunction(plan, origin, prompt_limit(keep_prompts) if folder is not None else 0),
                Checkpoint(folder, partial(parse_state_of_scan, origin), SECONDS_BETWEEN_CHECKPOINTS, shard_count),
                allow_missing=allow_missing,
                report=while_held(held, on_batch),
            )
        except KeyboardInterrupt as stopped:
            stopped.add_note(what_was_kept(folder))
            raise
        data = DataRef(source.name, state.facts.data_fingerprint, source.options)
        scores = [s for layer in plan.layers for s in layer_scores(identity, plan, state, data, layer)]
        run = provenance(identity, plan, data, state, len(blank_rows), source.unit)
        run |= {"seconds": round(time.monotonic() - start_time, 3)}
        run |= {} if options is None else {"options": dict(options)}
        table = LayerTable(tuple(scores), run)
        if folder is not None:
            table.save(folder)
        return table


def plan_record(plan: ScanPlan, source: Source, model: ModelRef, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What a run folder says about its scan before the first number is there."""
    data = {"name": source.name, "options": dict(source.options)}
    return {"origin": dict(origin), "settings": plan.settings(), "model": model.to_record(), "data": data}

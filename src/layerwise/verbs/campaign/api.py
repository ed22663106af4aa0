"""Runs the scans of a campaign that are not done yet, in this process and beside others that do the same."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from layerwise.core.errors import LayerwiseError, RunError
from layerwise.core.files import open_folder
from layerwise.core.progress import GO_ON
from layerwise.engines.engine import Engine
from layerwise.engines.opening import default_threads, open_engine, to_cluster
from layerwise.engines.options import Cluster, EngineChoice
from layerwise.engines.ray_cluster import connected, worker_count
from layerwise.engines.shards import torch_threads
from layerwise.inputs.modalities import open_source
from layerwise.models.opening import source_options
from layerwise.models.spec import ModelSpec, call_record
from layerwise.runs.leases import Leases, lease_files
from layerwise.runs.ownership import claim
from layerwise.runs.records import CELL, FAILED
from layerwise.runs.table import LayerTable
from layerwise.verbs.campaign.joined import join_scans
from layerwise.verbs.campaign.plan import Campaign, Cell
from layerwise.verbs.campaign.status import READERS, data_file_hash, is_done, model_files_hash
from layerwise.verbs.scan.execute import execute
from layerwise.verbs.scan.options import ScanOptions
from layerwise.verbs.scan.prepare import prepare

MODEL_BUILD_LOCK = Lock()  # building a model with transformers changes the default dtype of the whole process


@dataclass(frozen=True)
class Event:
    """Progress of one scan of a campaign.

    Attributes:
        cell: which scan.
        status: waiting, running, done, failed, or elsewhere if another process runs it.
        prompts: texts that were read since the last event.
        tokens: tokens that were read since the last event.
        why: the reason, if it failed.
    """

    cell: Cell
    status: str
    prompts: int = 0
    tokens: int = 0
    why: str = ""


OnEvent = Callable[[Event], None]


def campaign(file: "str | Path | Campaign", on_event: OnEvent = lambda event: None) -> LayerTable:
    """Runs the scans of a campaign that are not done yet, and joins all of them into one table in its folder.

    Each model is loaded once for all its data and settings. On Ray, several models run at the same time and share the
    workers evenly. A scan that fails does not stop the others; failures are reported at the end.

    Any number of processes, on any machines that share the folder, may run the same campaign at the same time. Each
    takes scans that no other process runs. The scans of a process that was killed are taken over by the others.

    Args:
        file: A YAML file with the keys out, models, data, settings, engine and allow_missing (docs/scale.md), or a
            loaded Campaign.
        on_event: Called with an Event when a scan waits, runs, is done or fails. By default nothing is called.

    Returns:
        The rows of all finished scans. The same table is saved in the campaign's folder.

    Raises:
        InputError: The file cannot be used; the message lists every problem.
        RunError: Some scans failed, or a folder holds a scan with other settings.

    Example:
        >>> plan = {"out": str(folder / "out"), "models": [model], "settings": {"one": {"metrics": "curvature"}}}
        >>> _ = (folder / "plan.yaml").write_text(str(plan))
        >>> len(layerwise.campaign(folder / "plan.yaml")) > 0
        True
    """
    plan = file if isinstance(file, Campaign) else Campaign.load(file)
    run_campaign(plan, on_event)
    return LayerTable.load(plan.out)


def run_campaign(plan: Campaign, on_event: OnEvent) -> None:
    """Runs and joins the scans of a campaign without reading the table."""
    claim(open_folder(plan.out), "campaign")
    with ThreadPoolExecutor(READERS) as pool:
        answers = list(pool.map(partial(is_done, plan), plan.cells))
    done = {cell.name for cell, ended in zip(plan.cells, answers, strict=True) if ended}
    for cell in plan.cells:
        on_event(Event(cell, "done" if cell.name in done else "waiting"))
    try:
        failed = run_waiting(plan, [cell for cell in plan.cells if cell.name not in done], on_event)
    except KeyboardInterrupt as stopped:
        if count := sum(is_done(plan, cell) for cell in plan.cells):
            stopped.add_note(f"{count} of {len(plan.cells)} scans are done; {GO_ON}")
        raise
    join_done_scans(plan, done)
    if failed:
        reasons = "; ".join(dict.fromkeys(f"{cell.model.name}: {why}" for cell, why in failed))
        message = f"{len(failed)} of {len(plan.cells)} scans failed; the others are in the table. {reasons}"
        raise RunError(f"{message}. Run the same command again to retry")


def join_done_scans(plan: Campaign, known: set[str]) -> None:
    """Joins what is done. Another process may finish a scan and join meanwhile; whoever writes last has all scans."""
    joined: list[Cell] | None = None
    while joined != (done := [cell for cell in plan.cells if cell.name in known or is_done(plan, cell)]):
        known.update(cell.name for cell in done)
        if done:
            join_scans(plan, done)
        joined = done


Failures = list[tuple[Cell, str]]  # with the reason


def run_waiting(plan: Campaign, waiting: Sequence[Cell], on_event: OnEvent) -> Failures:
    """Runs the scans that no other process runs, and those of processes that have died."""
    failed: Failures = []
    with Leases() as leases:
        remaining = list(waiting)
        if remaining and lease_files(plan.folder(remaining[0])):
            # Others are at work: every process begins somewhere else, so that few of them want the same scan.
            start = int(leases.owner, 16) % len(remaining)
            remaining = remaining[start:] + remaining[:start]
        while remaining:
            run = run_locally if plan.engine == "local" else run_on_ray
            failed += run(plan, by_model(remaining), leases, on_event)
            tried = {cell.name for cell, _ in failed}
            remaining = [cell for cell in remaining if cell.name not in tried and not is_done(plan, cell)]
            elsewhere = {cell.name for cell in remaining if leases.shows_life(plan.folder(cell))}
            for cell in remaining:
                if cell.name in elsewhere:
                    on_event(Event(cell, "elsewhere"))
            remaining = [cell for cell in remaining if cell.name not in elsewhere]
            if remaining:
                time.sleep(leases.beat / 4)
    return failed


def by_model(cells: Sequence[Cell]) -> dict[ModelSpec, list[Cell]]:
    groups: dict[ModelSpec, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.model, []).append(cell)
    return groups


def run_locally(
    plan: Campaign, pending: Mapping[ModelSpec, Sequence[Cell]], leases: Leases, on_event: OnEvent
) -> Failures:
    return [failure for cells in pending.values() for failure in run_model(plan, "local", cells, leases, on_event)]


def run_on_ray(
    plan: Campaign, pending: Mapping[ModelSpec, Sequence[Cell]], leases: Leases, on_event: OnEvent
) -> Failures:
    """Runs several models at once, each with a share of the workers."""
    cluster = to_cluster(plan.engine)
    # Threads are set once for this process: the models below share it, and each would restore what it found.
    with connected(cluster), torch_threads(default_threads(cluster)):
        workers = worker_count(cluster)
        parallel_models = max(1, min(len(pending), workers))
        cluster_share = replace(cluster, workers=workers // parallel_models)
        with ThreadPoolExecutor(parallel_models) as pool:
            jobs = [pool.submit(run_model, plan, cluster_share, cells, leases, on_event) for cells in pending.values()]
            try:
                return [failure for job in jobs for failure in job.result()]
            except BaseException:  # an interrupt: models that have not started do not start
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def run_model(
    plan: Campaign, engine: EngineChoice | Cluster, cells: Sequence[Cell], leases: Leases, on_event: OnEvent
) -> Failures:
    """Runs the scans of one model one by one; failures are returned, not raised."""
    failed: Failures = []

    def record_failure(cell: Cell, error: Exception) -> None:
        why = str(error) if isinstance(error, LayerwiseError) else f"{type(error).__name__}: {error}"
        failed.append((cell, why))
        on_event(Event(cell, "failed", why=why))
        if cell in waiting:  # otherwise the folder may not be ours
            waiting.remove(cell)
            with suppress(LayerwiseError, OSError):  # the disk may be full
                record = {"reason": why, "time": datetime.now(UTC).isoformat(timespec="seconds")}
                plan.folder(cell).write(FAILED.file, FAILED.dump(record))

    waiting: list[Cell] = []
    for cell in cells:
        try:
            if take(plan, cell, leases):
                waiting.append(cell)
        except Exception as error:
            record_failure(cell, error)
    taken = list(waiting)
    try:
        if taken:
            with open_engine(engine, taken[0].model, plan.out) as running_engine:
                for cell in taken:
                    try:
                        run_cell(plan, cell, running_engine, leases, on_event)
                        waiting.remove(cell)
                        on_event(Event(cell, "done"))
                    except Exception as error:  # of any kind: the other scans do not depend on it
                        record_failure(cell, error)
    except Exception as error:  # the model cannot be loaded
        for cell in list(waiting):
            record_failure(cell, error)
    finally:
        for cell in taken:
            leases.release(plan.folder(cell))
    return failed


def take(plan: Campaign, cell: Cell, leases: Leases) -> bool:
    """True if this process is to run the scan: nobody else does, and it is not done."""
    folder = plan.folder(cell)
    claim(folder, "scan")
    if not leases.take(folder):
        return False
    if is_done(plan, cell):  # by a process that has just given its lease back
        leases.release(folder)
        return False
    return True


def run_cell(plan: Campaign, cell: Cell, engine: Engine, leases: Leases, on_event: OnEvent) -> None:
    folder = plan.folder(cell)
    with MODEL_BUILD_LOCK:
        data = open_source(**source_options(cell.model, **cell.data))
        how: dict[str, Any] = {"out": str(folder), "engine": plan.engine, "allow_missing": plan.allow_missing}
        options = ScanOptions(cell.model, data, **cell.settings, **how)
        scan_plan, source, info = prepare(options, threads=default_threads(plan.engine), out=options.out)

    def on_start() -> None:
        hashes = {"data_hash": data_file_hash(cell), "model_hash": model_files_hash(cell)}
        folder.write(CELL.file, CELL.dump(cell.record() | hashes))
        on_event(Event(cell, "running"))

    execute(
        cell.model,
        scan_plan,
        source,
        engine=engine,
        info=info,
        folder=folder,
        require_lease=partial(leases.require, folder),
        on_start=on_start,
        on_batch=lambda prompts, tokens: on_event(Event(cell, "running", prompts, tokens)),
        allow_missing=plan.allow_missing,
        options=call_record("scan", options, source.options) | {"campaign": plan.file},
    )
    folder.delete([FAILED.file])

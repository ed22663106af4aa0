"""Scoring: mteb scores each readout on each task, in processes of one thread, and what is done is not done again."""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from layerwise.downstream.encoder import StoreFor, make_encoder
from layerwise.downstream.tasks import TaskChoice, make_task
from layerwise.downstream.vectors import VectorKind, VectorsMissing, VectorStore, tensor_name
from layerwise.files import write_json
from layerwise.passes.vectors import Readout


@dataclass(frozen=True)
class Scorer:
    """All that a process needs to score any readout on any task from the store; plain data, so it travels."""

    out: Path
    kind: VectorKind
    precision: str
    name: str
    revision: str
    prompts: tuple[tuple[str, str], ...] = ()

    def path(self, task: TaskChoice, readout: Readout) -> Path:
        data = task.local.revision if task.local else "hub"
        return self.out / "scores" / task.name / f"{tensor_name(readout)}-{data}.json"

    def done(self, task: TaskChoice, readout: Readout) -> dict[str, Any] | None:
        """The score, if it was computed before."""
        try:
            found: dict[str, Any] = json.loads(self.path(task, readout).read_text(encoding="utf-8"))
            return found
        except (OSError, ValueError):
            return None

    def store_for(self, make: Callable[[VectorKind], VectorStore]) -> StoreFor:
        """One store a prompt and role, opened when first needed."""
        opened: dict[tuple[str, str], VectorStore] = {}

        def find(prompt: str, role: str) -> VectorStore:
            if (prompt, role) not in opened:
                opened[prompt, role] = make(VectorKind(**(vars(self.kind) | {"prompt": prompt, "role": role})))
            return opened[prompt, role]

        return find

    def score(self, task: TaskChoice, readout: Readout, stores: StoreFor) -> dict[str, Any]:
        """mteb's main score of one readout on one task, in points from 0 to 100, saved before it is returned."""
        import mteb
        from mteb.cache import ResultCache

        encoder = make_encoder(stores, readout, name=self.name, revision=self.revision, prompts=dict(self.prompts))
        cache = ResultCache(self.out / "mteb")
        with quiet(), cache_of_its_own(task, self.out / "datasets"):
            made = loaded_task(task)
            result = mteb.evaluate(
                encoder, made, cache=cache, overwrite_strategy="always", show_progress_bar=False, co2_tracker=False
            )
        value = 100 * float(result.task_results[0].get_score())
        told: dict[str, Any] = {"task": task.name, "metric": str(made.metadata.main_score), "readout": asdict(readout)}
        told["score"] = value if math.isfinite(value) else None
        write_json(self.path(task, readout), told)
        return told


@contextmanager
def quiet() -> Iterator[None]:
    """Without the bars and advice of the libraries below: tasks are chosen on purpose, and one bar is enough."""
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if shown:
            datasets.enable_progress_bars()


@contextmanager
def cache_of_its_own(task: TaskChoice, folder: Path) -> Iterator[None]:
    """Local data are cached by content: the usual cache goes by a folder's name and would serve an older table."""
    import datasets

    usual = datasets.config.HF_DATASETS_CACHE
    if task.local:
        datasets.config.HF_DATASETS_CACHE = folder / task.local.revision
    try:
        yield
    finally:
        datasets.config.HF_DATASETS_CACHE = usual


_LOADED: dict[TaskChoice, Any] = {}


def loaded_task(choice: TaskChoice) -> Any:
    """A fresh task object over data that this process loads once."""
    task = make_task(choice)
    if choice not in _LOADED:
        _LOADED.clear()  # one data set at a time
        task.load_data()
        _LOADED[choice] = task.dataset
    task.dataset, task.data_loaded = _LOADED[choice], True
    return task


def score_all(
    scorer: Scorer,
    tasks: Sequence[TaskChoice],
    readouts: Sequence[Readout],
    open_store: Callable[[VectorKind], VectorStore],
    *,
    workers: int,
    on_score: Callable[[dict[str, Any]], None],
    after_task: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Scores of all readouts on all tasks, in that order.

    The first readout of a task is scored here, where texts without vectors can be computed, for all readouts at
    once; the others in worker processes, which only read. A worker that misses a text leaves it to us. With no
    workers, all are scored here.
    """
    stores = scorer.store_for(open_store)
    found: dict[tuple[str, Readout], dict[str, Any]] = {}

    def take(task: TaskChoice, readout: Readout, told: dict[str, Any]) -> None:
        found[task.name, readout] = told
        on_score(told)

    with ProcessPoolExecutor(max(1, workers), mp_context=get_context("spawn"), initializer=start_worker) as pool:
        for task in tasks:
            waiting = []
            for readout in readouts:
                told = scorer.done(task, readout)
                if told is None:
                    waiting.append(readout)
                else:
                    take(task, readout, told)
            here = waiting[:1] if workers else waiting
            for readout in here:
                take(task, readout, scorer.score(task, readout, stores))
            parts = [waiting[len(here) :][i::workers] for i in range(workers)]
            for future in as_completed(pool.submit(score_in_worker, scorer, task, part) for part in parts if part):
                scored, missed = future.result()
                for readout, told in scored:
                    take(task, readout, told)
                for readout in missed:
                    take(task, readout, scorer.score(task, readout, stores))
            after_task()
    return [found[task.name, readout] for task in tasks for readout in readouts]


def start_worker() -> None:
    """One thread a process: processes share the cores."""
    import torch

    torch.set_num_threads(1)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"


def score_in_worker(
    scorer: Scorer, task: TaskChoice, readouts: Sequence[Readout]
) -> tuple[list[tuple[Readout, dict[str, Any]]], list[Readout]]:
    """What could be scored from the store alone, and what could not."""
    root = scorer.out / "vectors"
    stores = scorer.store_for(lambda kind: VectorStore(root, kind, None, scorer.precision, verify=False))
    scored, missed = [], []
    for readout in readouts:
        try:
            scored.append((readout, scorer.score(task, readout, stores)))
        except VectorsMissing:
            missed.append(readout)
    return scored, missed

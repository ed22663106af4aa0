"""Runs an evaluation: vector store, scoring, rows and record."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder
from layerwise.core.recipe import Recipe
from layerwise.downstream.encoding import Encoding, filling
from layerwise.downstream.scoring import Scorer, score_all
from layerwise.downstream.tasks import TaskChoice
from layerwise.downstream.vectors import VectorKind, VectorStore, kinds_in
from layerwise.engines.shards import Engine, Processes
from layerwise.maps.fitted import AnyRecipe, FittedRecipe, fingerprint_of_texts, plain_recipe
from layerwise.runs.claims import claim
from layerwise.runs.identity import ModelRef
from layerwise.runs.records import environment
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import TABLE_FILE, LayerTable
from layerwise.runs.tasks import TaskRecord


def run_evaluation(
    engine: Engine,
    processes: Processes,
    tasks: Sequence[TaskChoice],
    recipes: Sequence[AnyRecipe],
    *,
    out: Path,
    max_length: int,
    fit: tuple[str, ...] | Literal["task"] = (),
    batch_tokens: int = 4096,
    prompts: dict[str, str] | None = None,
    precision: str = "float32",
    vectors: str = "keep",
    threads: int,
    options: Mapping[str, Any] | None = None,
    on_score: Callable[[dict[str, Any]], None] = lambda told: None,
) -> LayerTable:
    """Scores every recipe on every task; each unique text goes through the model once.

    `options` are the user's options as JSON, for the record.
    """
    began, network = time.monotonic(), engine.identity
    for fitted in recipes:
        if isinstance(fitted, FittedRecipe):
            fitted.require_model(network)
    claim(DiskFolder(out), "eval")
    given = tuple(sorted((prompts or {}).items()))
    look_back = partial(
        earlier_table, out, kind="eval", model=network.fingerprint, max_length=max_length, prompts=prompts or {},
        precision=precision,
    )  # fmt: skip
    look_back()  # fail before the work, not after it

    def folder_of(kind: VectorKind) -> Path:
        """The folder name includes prompts and precision, since they affect scores, like everything in `kind`."""
        return out / replace(kind, prompt=repr(given), role=precision).name()

    read = tuple(dict.fromkeys(readout for recipe in recipes for readout, _ in plain_recipe(recipe).parts))
    kind = VectorKind(network.fingerprint, network.dtype, max_length, read)
    kind = next((wider for wider in kinds_in(out) if wider.serves(kind) and folder_of(wider).exists()), kind)
    scorer = Scorer(folder_of(kind), kind, precision, network.name, network.revision, given, fit)
    opened: list[VectorStore] = []

    def open_store(wanted: VectorKind) -> VectorStore:
        encoding = Encoding(wanted, precision, batch_tokens, threads)
        opened.append(filling(engine, encoding, VectorStore(scorer.out / "vectors", wanted, precision=precision)))
        return opened[-1]

    def after_task() -> None:
        if vectors == "evict":
            for store in opened:
                store.evict()

    found, failed = score_all(
        scorer, tasks, recipes, open_store, processes=processes, on_score=on_score, after_task=after_task
    )
    run = {
        "kind": "eval",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "model": network.to_record(),
        "max_length": max_length,
        "prompts": prompts or {},
        "precision": precision,
        "fit": fit if isinstance(fit, str) else {"texts": len(fit), "fingerprint": fingerprint_of_texts(fit)},
        "forwarded_texts": sum(store.forwarded for store in opened),
        "tasks": {task.name: asdict(task_record(task, found)) for task in tasks},
        "failed": failed,
        "seconds": round(time.monotonic() - began, 1),
    }
    scored_by = [f"{name} {version(name)}" for name in ("mteb", "datasets")]
    settings = fingerprint_of_texts([repr(given), precision, *scored_by])
    scores = tuple(layer_score(network, told, tasks, fit, max_length, settings) for told in found)
    run |= {} if options is None else {"options": dict(options)}
    table = LayerTable(scores, run)
    if found:
        with_earlier(table, look_back()).save(out)
    if failed:
        told_tasks = "; ".join(f"{name} ({why.splitlines()[0]})" for name, why in failed.items())
        raise RunError(
            f"{len(failed)} of {len(tasks)} tasks failed: {told_tasks}. "
            + (f"All other scores are in {out}; " if found else "")
            + "run the same command again to retry them"
        )
    return table


def earlier_table(out: Path, **now: Any) -> LayerTable | None:
    """The table of earlier calls in this folder; raises if it was made with other settings."""
    if not (out / TABLE_FILE).exists():
        return None
    earlier = LayerTable.load(out)
    known = earlier.model
    then = {name: earlier.run.get(name) for name in now} | {"model": known.fingerprint if known else None}
    if differing := [name for name, value in now.items() if then[name] != value]:
        what = ", ".join(f"{name} is {then[name]} there, not {now[name]}" for name in differing)
        raise InputError(f"{out} contains the table of another run ({what}); choose another folder for --out")
    return earlier


def with_earlier(table: LayerTable, earlier: LayerTable | None) -> LayerTable:
    """The rows of earlier calls in this folder, followed by those of this call."""
    if earlier is None:
        return table
    length = earlier.run.get("max_length") or 0  # earlier versions recorded it once per run
    hashes = {(row.metric, row.data_hash) for row in table}
    tasks_now = {row.metric for row in table}
    known = [
        replace(row, max_length=row.max_length or length)
        for row in earlier
        # otherwise the task's data have changed
        if row.metric not in tasks_now or (row.metric, row.data_hash) in hashes
    ]
    # A repeated row replaces the earlier one in place, even if another mteb version scored it.
    rows = {replace(row, settings_hash="").identity: row for row in (*known, *table)}
    tasks = {**earlier.run.get("tasks", {}), **table.run["tasks"]}
    failed = {name: why for name, why in earlier.run.get("failed", {}).items() if name not in table.run["tasks"]}
    run = {**table.run, "tasks": tasks, "failed": failed | table.run["failed"]}
    # the recorded command lists all tasks of this folder
    if "options" in run and set(tasks) != set(table.run["tasks"]):
        run["options"] = {**run["options"], "tasks": list(tasks)}
    return LayerTable(tuple(rows.values()), run)


def layer_score(
    network: ModelRef,
    told: dict[str, Any],
    tasks: Sequence[TaskChoice],
    fit: tuple[str, ...] | Literal["task"],
    max_length: int,
    settings_hash: str,
) -> LayerScore:
    """A task's score as a row: the task is the metric, in points from 0 to 100."""
    recipe, task = Recipe(**told["recipe"]), next(t for t in tasks if t.name == told["task"])
    return LayerScore(
        model=network.name,
        revision=network.revision,
        depth=recipe.layer / network.depth,
        **asdict(recipe.readout),
        transform=recipe.transform,
        normalize=recipe.normalize,
        prompt=recipe.prompt,
        fit=told.get("fit") or fit_word(recipe, fit),
        max_length=recipe.max_length or max_length,
        rows="-",
        metric=told["task"],
        value=float("nan") if told["score"] is None else told["score"],
        n=task.local.examples if task.local else 0,
        data=f"{task.type}: {told['metric']}",
        dtype=network.dtype,
        model_hash=network.fingerprint,
        data_hash=str(told["made_with"]["data"]),
        settings_hash=settings_hash,
    )


def fit_word(recipe: Recipe, fit: tuple[str, ...] | Literal["task"]) -> str:
    """What the map of a plain recipe was fitted on, as stored in rows."""
    if recipe.transform == "none":
        return ""
    return fit if isinstance(fit, str) else fingerprint_of_texts(fit)


def task_record(task: TaskChoice, found: Sequence[dict[str, Any]]) -> TaskRecord:
    """What run.json records about a task; its score name is known if the task was scored."""
    score = next((str(told["metric"]) for told in found if told["task"] == task.name), "")
    if task.local is None:
        return TaskRecord(task.type, score)
    return TaskRecord(task.type, score, task.local.examples, task.local.of, "local")

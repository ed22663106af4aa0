"""Runs an evaluation: vector store, scoring, rows and record."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from layerwise.core.errors import InputError, RunError
from layerwise.core.files import DiskFolder, write_checked_json
from layerwise.core.recipe import Readout, Recipe
from layerwise.engines.engine import Engine
from layerwise.engines.shards import Processes
from layerwise.maps.fitted import AnyRecipe, plain_recipe, texts_fingerprint
from layerwise.runs.identity import ModelRef
from layerwise.runs.ownership import claim
from layerwise.runs.records import environment
from layerwise.runs.result import RUN_FILE, TABLE_FILE
from layerwise.runs.scores import LayerScore
from layerwise.runs.table import LayerTable
from layerwise.runs.tasks import TaskRecord
from layerwise.verbs.eval.encoding import Encoding, with_engine
from layerwise.verbs.eval.scoring import Scorer, score_all
from layerwise.verbs.eval.tasks import TaskChoice
from layerwise.verbs.eval.vectors import VectorKind, VectorStore, find_kinds

KIND_FILE = "kind.json"  # in the folder of a kind: all readouts that are scored there


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
    similarity: str = "",
    options: Mapping[str, Any] | None = None,
    on_score: Callable[[dict[str, Any]], None] = lambda record: None,
) -> LayerTable:
    """Scores every recipe on every task; each unique text goes through the model once.

    `similarity` is how the vectors of the model as shipped are compared, if not by cosine; it is part of the model's
    identity. `options` are the user's options as JSON, for the record.
    """
    start_time, model = time.monotonic(), engine.identity
    claim(DiskFolder(out), "eval")
    prompt_items = tuple(sorted((prompts or {}).items()))
    load_earlier = partial(
        load_earlier_table, out, kind="eval", model=model.fingerprint, max_length=max_length, prompts=prompts or {},
        precision=precision,
    )  # fmt: skip
    load_earlier()  # fail before the work, not after it

    def store_folder(kind: VectorKind) -> Path:
        """The folder name includes prompts and precision, since they affect scores, like everything in `kind`."""
        return out / kind.name(template=repr(prompt_items), role=precision)

    stored = find_kinds(out)
    kind = VectorKind(model.fingerprint, model.dtype, max_length, all_readouts(recipes))
    earlier = find_kinds(out, f"*/{KIND_FILE}")
    kind = next((c for c in earlier if c.includes(kind) and store_folder(c).exists()), kind)
    by_template = template_readouts(recipes, kind, stored)
    scorer = Scorer(
        store_folder(kind), kind, precision, model.name, model.revision, prompt_items, fit, by_template, similarity
    )
    write_checked_json(scorer.out / KIND_FILE, kind.to_record())
    stores: list[VectorStore] = []

    def open_store(kind: VectorKind) -> VectorStore:
        encoding = Encoding(kind, precision, batch_tokens, threads)
        stores.append(with_engine(engine, encoding, VectorStore(scorer.out / "vectors", kind, precision=precision)))
        return stores[-1]

    def after_task() -> None:
        if vectors == "evict":
            for store in stores:
                store.evict()

    records, failed = score_all(
        scorer, tasks, recipes, open_store, processes=processes, on_score=on_score, after_task=after_task
    )
    run = {
        "kind": "eval",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment(),
        "model": model.to_record(),
        "max_length": max_length,
        "prompts": prompts or {},
        "precision": precision,
        "fit": fit if isinstance(fit, str) else {"texts": len(fit), "fingerprint": texts_fingerprint(fit)},
        "forwarded_texts": sum(store.encoded_count for store in stores),
        "tasks": {task.name: asdict(task_record(task, records)) for task in tasks},
        "failed": failed,
        "seconds": round(time.monotonic() - start_time, 1),
    }
    versions = [f"{name} {version(name)}" for name in ("mteb", "datasets")]
    settings = texts_fingerprint([repr(prompt_items), precision, *versions])
    scores = tuple(layer_score(model, record, tasks, fit, max_length, settings) for record in records)
    run |= {} if options is None else {"options": dict(options)}
    table = LayerTable(scores, run)
    if records:
        merge_earlier(table, load_earlier()).save(out)
    if failed:
        failures = "; ".join(f"{name} ({why.splitlines()[0]})" for name, why in failed.items())
        raise RunError(
            f"{len(failed)} of {len(tasks)} tasks failed: {failures}. "
            + (f"All other scores are in {out}; " if records else "")
            + "run the same command again to retry them"
        )
    return table


def all_readouts(recipes: Iterable[AnyRecipe]) -> tuple[Readout, ...]:
    """The readouts of all parts of the recipes."""
    return tuple(dict.fromkeys(readout for recipe in recipes for readout, _ in plain_recipe(recipe).parts))


def template_readouts(
    recipes: Sequence[AnyRecipe], kind: VectorKind, stored: Sequence[VectorKind]
) -> dict[str, tuple[Readout, ...]]:
    """The readouts to store under each template: those of its recipes, or of an existing store that has them all."""
    found = {}
    for template in dict.fromkeys(plain_recipe(recipe).template for recipe in recipes):
        readouts = all_readouts(recipe for recipe in recipes if plain_recipe(recipe).template == template)
        wanted = replace(kind, readouts=readouts, template=template)
        found[template] = next((k.readouts for k in stored if replace(k, role="").includes(wanted)), readouts)
    return found


def load_earlier_table(out: Path, **current: Any) -> LayerTable | None:
    """The table of earlier calls in this folder; raises if it was made with other settings."""
    if not (out / TABLE_FILE).exists() or not (out / RUN_FILE).exists():  # killed before its record was written
        return None
    earlier = LayerTable.load(out)
    model = earlier.model
    previous = {name: earlier.run.get(name) for name in current} | {"model": model.fingerprint if model else None}
    if differing := [name for name, value in current.items() if previous[name] != value]:
        differences = ", ".join(f"{name} is {previous[name]} there, not {current[name]}" for name in differing)
        raise InputError(f"{out} contains the table of another run ({differences}); choose another folder for --out")
    return earlier


def merge_earlier(table: LayerTable, earlier: LayerTable | None) -> LayerTable:
    """The rows of earlier calls in this folder, followed by those of this call."""
    if earlier is None:
        return table
    hashes = {(row.metric, row.data_hash) for row in table}
    current_tasks = {row.metric for row in table}
    earlier_rows = [
        row
        for row in earlier
        # otherwise the task's data have changed
        if row.metric not in current_tasks or (row.metric, row.data_hash) in hashes
    ]
    # A repeated row replaces the earlier one in place, even if another mteb version scored it.
    rows = {replace(row, settings_hash="").identity: row for row in (*earlier_rows, *table)}
    tasks = {**earlier.run.get("tasks", {}), **table.run["tasks"]}
    failed = {name: why for name, why in earlier.run.get("failed", {}).items() if name not in table.run["tasks"]}
    run = {**table.run, "tasks": tasks, "failed": failed | table.run["failed"]}
    # the recorded command lists all tasks of this folder
    if "options" in run and set(tasks) != set(table.run["tasks"]):
        run["options"] = {**run["options"], "tasks": list(tasks)}
    return LayerTable(tuple(rows.values()), run)


def layer_score(
    model: ModelRef,
    record: dict[str, Any],
    tasks: Sequence[TaskChoice],
    fit: tuple[str, ...] | Literal["task"],
    max_length: int,
    settings_hash: str,
) -> LayerScore:
    """A task's score as a row: the task is the metric, in points from 0 to 100."""
    recipe, task = (
        Recipe.from_record(record["recipe"], "a saved score"),
        next(t for t in tasks if t.name == record["task"]),
    )
    return LayerScore(
        model=model.name,
        revision=model.revision,
        depth=recipe.layer / max(model.depth, 1),  # a static model has no layers
        **asdict(recipe.readout),
        transform=recipe.transform,
        normalize=recipe.normalize,
        template=recipe.template,
        fit=record.get("fit") or fit_label(recipe, fit),
        max_length=recipe.max_length or max_length,
        rows="-",
        metric=record["task"],
        value=float("nan") if record["score"] is None else record["score"],
        n=task.local.examples if task.local else 0,
        data=f"{task.type}: {record['metric']}",
        dtype=model.dtype,
        model_hash=model.fingerprint,
        data_hash=str(record["made_with"]["data"]),
        settings_hash=settings_hash,
    )


def fit_label(recipe: Recipe, fit: tuple[str, ...] | Literal["task"]) -> str:
    """What the map of a plain recipe was fitted on, as stored in rows."""
    if recipe.transform == "none":
        return ""
    return fit if isinstance(fit, str) else texts_fingerprint(fit)


def task_record(task: TaskChoice, records: Sequence[dict[str, Any]]) -> TaskRecord:
    """What run.json records about a task; its score name is known if the task was scored."""
    score = next((str(record["metric"]) for record in records if record["task"] == task.name), "")
    if task.local is None:
        return TaskRecord(task.type, score)
    return TaskRecord(task.type, score, task.local.examples, task.local.of, "local")

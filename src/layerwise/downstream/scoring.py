"""Scoring: mteb scores each recipe on each task, in single-threaded processes; finished scores are reused."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from layerwise.core.errors import LayerwiseError
from layerwise.core.files import safe_name, write_json
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import Recipe
from layerwise.downstream.encoder import RecipeVectors, StoreFor, make_encoder
from layerwise.downstream.tasks import TaskChoice, data_revision, make_task, texts_of
from layerwise.downstream.vectors import VectorKind, VectorsMissing, VectorStore, tensor_name
from layerwise.engines.shards import Processes
from layerwise.maps.fitted import AnyRecipe, FittedRecipe, plain_recipe


@dataclass(frozen=True)
class Scorer:
    """Everything a process needs to score recipes from the store; plain data that can be sent to other processes."""

    out: Path
    kind: VectorKind
    precision: str
    name: str
    revision: str
    prompts: tuple[tuple[str, str], ...] = ()
    fit: tuple[str, ...] | Literal["task"] = ()  # texts to fit maps on; "task": the task's own texts, without labels

    def path(self, task: TaskChoice, asked: AnyRecipe) -> Path:
        data, recipe = task.local.revision if task.local else "hub", plain_recipe(asked)
        name = safe_name(tensor_name(recipe), "the readout of a recipe")  # a recipe file may contain anything
        if recipe != Recipe(**asdict(recipe.readout)):
            map_of: Any = self.fit if recipe.transform != "none" else ()
            if isinstance(asked, FittedRecipe) and asked.maps:
                map_of = asked.identity
            words = repr((recipe, map_of))
            name += "-" + hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return self.out / "scores" / task.name / f"{name}-{data}.json"

    def done(self, task: TaskChoice, recipe: AnyRecipe) -> dict[str, Any] | None:
        """The saved score, if it was computed on the same data with the same versions of mteb and datasets."""
        try:
            found: Any = json.loads(self.path(task, recipe).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.get("made_with") != made_with(task):
            return None
        return found if {"task", "metric", "recipe", "score"} <= set(found) else None

    def store_for(self, make: Callable[[VectorKind], VectorStore]) -> StoreFor:
        """One store per prompt, role and length, opened when first needed."""
        opened: dict[VectorKind, VectorStore] = {}

        def find(prompt: str, role: str, max_length: int | None) -> VectorStore:
            kind = replace(self.kind, prompt=prompt, role=role, max_length=max_length or self.kind.max_length)
            if kind not in opened:
                opened[kind] = make(kind)
            return opened[kind]

        return find

    def score(self, task: TaskChoice, asked: AnyRecipe, stores: StoreFor) -> dict[str, Any]:
        """mteb's main score of one recipe on one task, in points from 0 to 100, saved before it is returned."""
        import mteb
        from mteb.cache import ResultCache

        recipe, ready = plain_recipe(asked), asked.fitted_on if isinstance(asked, FittedRecipe) else None
        fit = texts_of(task) if self.fit == "task" and recipe.transform != "none" and ready is None else self.fit
        vectors = RecipeVectors(stores, asked, fit)
        encoder = make_encoder(vectors, name=self.name, revision=self.revision, prompts=dict(self.prompts))
        results = ResultCache(self.out / "mteb")
        with quiet_libraries(), cache_of_its_own(task, self.out / "datasets"):
            made = loaded_task(task)
            result = mteb.evaluate(
                encoder, made, cache=results, overwrite_strategy="always", show_progress_bar=False, co2_tracker=False
            )
        value = 100 * float(result.task_results[0].get_score())
        told: dict[str, Any] = {"task": task.name, "metric": str(made.metadata.main_score), "recipe": asdict(recipe)}
        told["score"] = value if math.isfinite(value) else None
        told["fit"] = ready.fingerprint if ready else None
        told["made_with"] = made_with(task)
        write_json(self.path(task, asked), told)
        return told


def made_with(task: TaskChoice) -> dict[str, str]:
    """What affects a score besides vectors and recipe: the data, and the versions of the scoring code."""
    return {"data": data_revision(task), "mteb": version("mteb"), "datasets": version("datasets")}


@cache
def quick_columns() -> Any:
    """A Dataset class whose columns are read as lists, also after select()."""
    from datasets import Dataset

    class QuickColumns(Dataset):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            return found[:] if isinstance(key, str) else found

        def select(self, *args: Any, **options: Any) -> Any:
            return columns_as_lists(super().select(*args, **options))

    return QuickColumns


def columns_as_lists(loaded: Any) -> Any:
    """Converts loaded data sets so that their columns are read as lists.

    mteb reads labels row by row, which takes far longer than scoring. Only copies for this task are changed; the
    datasets library itself is not.
    """
    from datasets import Dataset

    if isinstance(loaded, dict):
        made = copy(loaded)
        for name, part in loaded.items():
            made[name] = columns_as_lists(part)
        return made
    if type(loaded) is not Dataset:
        return loaded
    quick = copy(loaded)
    quick.__class__ = quick_columns()
    return quick


@contextmanager
def cache_of_its_own(task: TaskChoice, folder: Path) -> Iterator[None]:
    """Caches local data by content: the default cache uses the folder name and could return an outdated table."""
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
    """A new task object; its data are loaded once per process."""
    task = make_task(choice)
    if choice not in _LOADED:
        _LOADED.clear()  # one data set at a time
        task.load_data()
        _LOADED[choice] = task.dataset
    task.dataset, task.data_loaded = columns_as_lists(_LOADED[choice]), True
    for name in ("evaluator", "_compute_metrics"):  # clustering tasks create further data sets and pass them to these
        if callable(usual := getattr(task, name, None)):
            setattr(task, name, partial(with_lists, usual))
    return task


def with_lists(usual: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Calls the function with all data sets and columns converted to lists."""
    import datasets

    column = getattr(datasets, "Column", list)  # before version 4, a column was a list
    read = [part[:] if isinstance(part, column) else columns_as_lists(part) for part in given]
    return usual(*read, **options)


@dataclass
class Outcome:
    """The outcome of scoring recipes on a task: scores, recipes without vectors, and the first error."""

    scored: dict[AnyRecipe, dict[str, Any]] = field(default_factory=dict)
    missed: list[AnyRecipe] = field(default_factory=list)
    failed: str = ""


def score_task(scorer: Scorer, task: TaskChoice, recipes: Sequence[AnyRecipe], stores: StoreFor) -> Outcome:
    """Scores each recipe on the task; a failure does not stop the others, since often only upper layers overflow."""
    found = Outcome()
    for recipe in recipes:
        try:
            found.scored[recipe] = scorer.score(task, recipe, stores)
        except VectorsMissing:
            found.missed.append(recipe)
        except LayerwiseError:  # our own errors affect every recipe
            raise
        except Exception as error:  # errors of the data or of mteb
            found.failed = found.failed or f"{type(error).__name__}: {error}"
            if task not in _LOADED:  # its data cannot be loaded, so every recipe would fail
                break
    return found


def score_all(
    scorer: Scorer,
    tasks: Sequence[TaskChoice],
    recipes: Sequence[AnyRecipe],
    open_store: Callable[[VectorKind], VectorStore],
    *,
    processes: Processes,
    on_score: Callable[[dict[str, Any]], None],
    after_task: Callable[[], None] = lambda: None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The scores of all recipes on all tasks, in order, and the errors by task; a failure does not stop the others.

    The first recipe of a task is scored in this process, which computes missing vectors for all recipes at once. The
    others are scored in processes that only read; recipes with missing vectors are returned to this process. Without
    processes, all are scored here.
    """
    stores = scorer.store_for(open_store)
    found: dict[tuple[str, AnyRecipe], dict[str, Any]] = {}
    failed: dict[str, str] = {}

    def take(task: TaskChoice, outcome: Outcome) -> None:
        for recipe, told in outcome.scored.items():
            found[task.name, recipe] = told
            on_score(told)
        if outcome.failed:
            failed.setdefault(task.name, outcome.failed)

    for task in tasks:
        known = {recipe: told for recipe in recipes if (told := scorer.done(task, recipe)) is not None}
        take(task, Outcome(known))
        waiting = [recipe for recipe in recipes if recipe not in known]
        width = processes.width  # read once, since a cluster may grow
        here = waiting[:1] if width else waiting
        take(task, score_task(scorer, task, here, stores))
        others = [] if here and task not in _LOADED else waiting[len(here) :]
        parts = [others[i::width] for i in range(width)]
        for outcome in processes.answers(score_in_process, [(scorer, task, part) for part in parts if part]):
            take(task, outcome)
            take(task, score_task(scorer, task, outcome.missed, stores))
        after_task()
    return [found[at] for task in tasks for recipe in recipes if (at := (task.name, recipe)) in found], failed


def score_in_process(scorer: Scorer, task: TaskChoice, recipes: Sequence[AnyRecipe]) -> Outcome:
    """Scores what is possible from the store alone."""
    root = scorer.out / "vectors"
    stores = scorer.store_for(lambda kind: VectorStore(root, kind, None, scorer.precision, verify=False))
    return score_task(scorer, task, recipes, stores)

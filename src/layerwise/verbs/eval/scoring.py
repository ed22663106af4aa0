"""Scoring: mteb scores each recipe on each task, in single-threaded processes; finished scores are reused."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from layerwise.core.checks import SHIPPED
from layerwise.core.errors import InputError, LayerwiseError, NotFiniteError, RunError
from layerwise.core.files import safe_name, write_checked_json
from layerwise.core.formats import parse_stored
from layerwise.core.progress import announce
from layerwise.core.quiet import quiet_libraries
from layerwise.core.recipe import RECIPE_SHAPE, Readout, Recipe
from layerwise.engines.shards import Processes
from layerwise.maps.fitted import AnyRecipe, FittedRecipe, plain_recipe
from layerwise.runs.records import NUMBER_TYPES
from layerwise.runs.summary import counted
from layerwise.verbs.eval.encoder import RecipeVectors, StoreFactory, make_encoder
from layerwise.verbs.eval.tasks import TaskChoice, data_revision, make_task, task_texts
from layerwise.verbs.eval.vectors import VectorKind, VectorsMissingError, VectorStore, tensor_name


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
    # readouts under each template; all readouts of `kind` under any other
    template_readouts: Mapping[str, tuple[Readout, ...]] = field(default_factory=dict)
    similarity: str = ""  # how the vectors of the model as shipped are compared, if not by cosine

    def path(self, task: TaskChoice, given_recipe: AnyRecipe) -> Path:
        data, recipe = task.local.revision if task.local else "hub", plain_recipe(given_recipe)
        name = safe_name(tensor_name(recipe), "the readout of a recipe")  # a recipe file may contain anything
        if recipe != Recipe(**asdict(recipe.readout)):
            map_identity: Any = self.fit if recipe.transform != "none" else ()
            if isinstance(given_recipe, FittedRecipe) and given_recipe.maps:
                map_identity = given_recipe.identity
            text = repr((asdict(recipe), map_identity))
            name += "-" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return self.out / "scores" / task.name / f"{name}-{data}.json"

    def saved_score(self, task: TaskChoice, recipe: AnyRecipe) -> dict[str, Any] | None:
        """The saved score, if it is of this recipe, on the same data, with the same versions of mteb and datasets."""
        try:
            path = self.path(task, recipe)
            shape = {"task": str, "metric": str, "recipe": RECIPE_SHAPE, "score": NUMBER_TYPES}
            record = parse_stored(path.read_bytes(), str(path), shape)
            saved = (record["task"], Recipe.from_record(record["recipe"], str(path)))
        except (OSError, RunError, InputError):
            return None
        if saved != (task.name, plain_recipe(recipe)):
            return None
        return record if record.get("made_with") == scoring_versions(task) else None

    def store_for(self, open_store: Callable[[VectorKind], VectorStore]) -> StoreFactory:
        """One store per template, role and length, opened when first needed."""
        opened: dict[VectorKind, VectorStore] = {}

        def find(template: str, role: str, max_length: int | None) -> VectorStore:
            readouts, length = (
                self.template_readouts.get(template, self.kind.readouts),
                max_length or self.kind.max_length,
            )
            kind = replace(self.kind, template=template, readouts=readouts, role=role, max_length=length)
            if kind not in opened:
                opened[kind] = open_store(kind)
            return opened[kind]

        return find

    def score(self, task: TaskChoice, given_recipe: AnyRecipe, stores: StoreFactory) -> dict[str, Any]:
        """mteb's main score of one recipe on one task, in points from 0 to 100, saved before it is returned."""
        import mteb
        from mteb.cache import ResultCache

        recipe, fitted_on = (
            plain_recipe(given_recipe),
            given_recipe.fitted_on if isinstance(given_recipe, FittedRecipe) else None,
        )
        fit = task_texts(task) if self.fit == "task" and recipe.transform != "none" and fitted_on is None else self.fit
        vectors = RecipeVectors(stores, given_recipe, fit)
        similarity = self.similarity if recipe.norm == SHIPPED and recipe.transform == "none" else ""
        encoder = make_encoder(
            vectors, name=self.name, revision=self.revision, prompts=dict(self.prompts), similarity=similarity
        )
        results = ResultCache(self.out / "mteb")
        with quiet_libraries(), content_cache(task, self.out / "datasets"):
            mteb_task = load_task(task)
            result = mteb.evaluate(
                encoder,
                mteb_task,
                cache=results,
                overwrite_strategy="always",
                show_progress_bar=False,
                co2_tracker=False,
            )
        value = 100 * float(result.task_results[0].get_score())
        record: dict[str, Any] = {
            "task": task.name,
            "metric": str(mteb_task.metadata.main_score),
            "recipe": asdict(recipe),
        }
        record["score"] = value if math.isfinite(value) else None
        record["fit"] = fitted_on.fingerprint if fitted_on else None
        record["made_with"] = scoring_versions(task)
        write_checked_json(self.path(task, given_recipe), record)
        return record


def scoring_versions(task: TaskChoice) -> dict[str, str]:
    """What affects a score besides vectors and recipe: the data, and the versions of the scoring code."""
    return {"data": data_revision(task), "mteb": version("mteb"), "datasets": version("datasets")}


@cache
def list_column_dataset() -> Any:
    """A Dataset class whose columns are read as lists, also after select()."""
    from datasets import Dataset

    class QuickColumns(Dataset):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            value = super().__getitem__(key)
            return value[:] if isinstance(key, str) else value

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
        converted_splits = copy(loaded)
        for name, part in loaded.items():
            converted_splits[name] = columns_as_lists(part)
        return converted_splits
    if type(loaded) is not Dataset:
        return loaded
    converted = copy(loaded)
    converted.__class__ = list_column_dataset()
    return converted


@contextmanager
def content_cache(task: TaskChoice, folder: Path) -> Iterator[None]:
    """Caches local data by content: the default cache uses the folder name and could return an outdated table."""
    import datasets

    previous = datasets.config.HF_DATASETS_CACHE
    if task.local:
        datasets.config.HF_DATASETS_CACHE = folder / task.local.revision
    try:
        yield
    finally:
        datasets.config.HF_DATASETS_CACHE = previous


_LOADED: dict[TaskChoice, Any] = {}


def load_task(choice: TaskChoice) -> Any:
    """A new task object; its data are loaded once per process."""
    task = make_task(choice)
    if choice not in _LOADED:
        _LOADED.clear()  # one data set at a time
        task.load_data()
        _LOADED[choice] = task.dataset
    task.dataset, task.data_loaded = columns_as_lists(_LOADED[choice]), True
    for name in ("evaluator", "_compute_metrics"):  # clustering tasks create further data sets and pass them to these
        if callable(method := getattr(task, name, None)):
            setattr(task, name, partial(call_with_lists, method))
    return task


def call_with_lists(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls the function with all data sets and columns converted to lists."""
    import datasets

    column = getattr(datasets, "Column", list)  # before version 4, a column was a list
    converted = [part[:] if isinstance(part, column) else columns_as_lists(part) for part in args]
    return function(*converted, **options)


@dataclass
class Outcome:
    """The outcome of scoring recipes on a task: scores, recipes without vectors, and the first error."""

    scored: dict[AnyRecipe, dict[str, Any]] = field(default_factory=dict)
    missing_vectors: list[AnyRecipe] = field(default_factory=list)
    error: str = ""


def score_task(scorer: Scorer, task: TaskChoice, recipes: Sequence[AnyRecipe], stores: StoreFactory) -> Outcome:
    """Scores each recipe on the task; a failure does not stop the others, since often only upper layers overflow."""
    outcome = Outcome()
    for recipe in recipes:
        try:
            outcome.scored[recipe] = scorer.score(task, recipe, stores)
        except VectorsMissingError:
            outcome.missing_vectors.append(recipe)
        except NotFiniteError as error:  # lower layers may be finite
            outcome.error = outcome.error or str(error)
        except LayerwiseError:  # our own errors affect every recipe
            raise
        except Exception as error:  # errors of the data or of mteb
            outcome.error = outcome.error or f"{type(error).__name__}: {error}"
            if task not in _LOADED:  # its data cannot be loaded, so every recipe would fail
                break
    return outcome


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
    records: dict[tuple[str, AnyRecipe], dict[str, Any]] = {}
    failed: dict[str, str] = {}

    def add_outcome(task: TaskChoice, outcome: Outcome) -> None:
        for recipe, record in outcome.scored.items():
            records[task.name, recipe] = record
            on_score(record)
        if outcome.error:
            failed.setdefault(task.name, outcome.error)

    all_saved = [
        {recipe: record for recipe in recipes if (record := scorer.saved_score(task, recipe)) is not None}
        for task in tasks
    ]
    if done := sum(map(len, all_saved)):
        announce(f"resuming: {done:,} of {counted(len(tasks) * len(recipes), 'score')} done already")
    for task, saved in zip(tasks, all_saved, strict=True):
        add_outcome(task, Outcome(saved))
        pending = [recipe for recipe in recipes if recipe not in saved]
        parallelism = processes.parallelism  # read once, since a cluster may grow
        local = pending[:1] if parallelism else pending
        add_outcome(task, score_task(scorer, task, local, stores))
        remote = [] if local and task not in _LOADED else pending[len(local) :]
        parts = [remote[i::parallelism] for i in range(parallelism)]
        for outcome in processes.results(score_in_process, [(scorer, task, part) for part in parts if part]):
            add_outcome(task, outcome)
            add_outcome(task, score_task(scorer, task, outcome.missing_vectors, stores))
        after_task()
    return [records[key] for task in tasks for recipe in recipes if (key := (task.name, recipe)) in records], failed


def score_in_process(scorer: Scorer, task: TaskChoice, recipes: Sequence[AnyRecipe]) -> Outcome:
    """Scores what is possible from the store alone."""
    root = scorer.out / "vectors"
    stores = scorer.store_for(lambda kind: VectorStore(root, kind, None, scorer.precision, verify=False))
    return score_task(scorer, task, recipes, stores)

"""Tasks as mteb objects: the paper's 32, any mteb task by name or type, and your own labelled data."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError, MissingExtra
from layerwise.inputs.source import hash_id
from layerwise.verbs.eval.data_root import LocalTask, read_root

PAPER_32 = (
    "AmazonCounterfactualClassification", "AmazonReviewsClassification", "Banking77Classification",
    "EmotionClassification", "MTOPDomainClassification", "MTOPIntentClassification", "MassiveIntentClassification",
    "MassiveScenarioClassification", "ToxicConversationsClassification", "TweetSentimentExtractionClassification",
    "ArxivClusteringS2S", "BiorxivClusteringS2S", "MedrxivClusteringS2S", "RedditClustering", "StackExchangeClustering",
    "TwentyNewsgroupsClustering", "SprintDuplicateQuestions", "TwitterSemEval2015", "TwitterURLCorpus",
    "AskUbuntuDupQuestions", "MindSmallReranking", "SciDocsRR", "StackOverflowDupQuestions", "BIOSSES", "SICK-R",
    "STS12", "STS13", "STS14", "STS15", "STS16", "STS17", "STSBenchmark",
)  # fmt: skip
BENCHMARK = "MTEB(eng, v1)"  # contains them all, limited to English and the test split

MAX_FIT_TEXTS = 1000  # more texts hardly change a map

MAIN_SCORES = {
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "PairClassification": "max_ap",
    "STS": "cosine_spearman",
    "Reranking": "map_at_1000",
    "Retrieval": "ndcg_at_10",
}


@dataclass(frozen=True)
class TaskChoice:
    """One task to score on: an mteb task, with local data if a data root has them, or your own."""

    name: str
    type: str
    local: LocalTask | None = None


def require_mteb() -> Any:
    if find_spec("mteb") is None:
        raise MissingExtra("scoring on tasks needs mteb: pip install 'layerwise[mteb]'")
    import mteb

    return mteb


def choose_tasks(tasks: str | Sequence[str], data_root: str | Path | None = None) -> list[TaskChoice]:
    """Tasks from `paper32`, names, types (STS, Classification ...), or `all` of a data root."""
    local = read_root(Path(data_root)) if data_root else {}
    items = [w.strip() for w in (tasks.split(",") if isinstance(tasks, str) else tasks)]
    chosen: dict[str, TaskChoice] = {}
    for name in (name for item in items for name in expand_task_name(item, local)):
        if name in local:
            chosen[name] = TaskChoice(name, local[name].type, local[name])
        elif (task := official_task(name)) is not None:
            chosen[name] = TaskChoice(name, str(task.metadata.type))
        else:
            raise InputError(f"no task {name!r} in mteb; use paper32, a type such as STS, or a name from mteb's list")
    return list(chosen.values())


def expand_task_name(item: str, local: Mapping[str, LocalTask]) -> list[str]:
    """The names of the tasks that one item stands for."""
    if item == "all" and local:
        return list(local)
    if item == "paper32":
        return [name for name in PAPER_32 if not local or name in local]
    if item in MAIN_SCORES:
        if local:
            return [name for name, task in local.items() if task.type == item]
        return [name for name in PAPER_32 if benchmark_tasks()[name].metadata.type == item]
    if local and item not in local:
        raise InputError(f"the data root has no task {item!r}; it contains {', '.join(local)}")
    return [item]


@cache
def benchmark_tasks() -> dict[str, Any]:
    """The tasks of the paper's benchmark by name, English test split only; not loaded, copy before use."""
    return {task.metadata.name: task for task in require_mteb().get_benchmark(BENCHMARK).tasks}


@cache
def official_task(name: str) -> Any:
    """The mteb task of that name, not loaded; None if there is none."""
    if name in benchmark_tasks():
        return benchmark_tasks()[name]
    try:
        return require_mteb().get_task(name, eval_splits=["test"])
    except KeyError:
        return None


def data_revision(choice: TaskChoice) -> str:
    """The version of a task's data: a hash of local tables, or the hub revision."""
    if choice.local:
        return choice.local.revision
    return str(official_task(choice.name).metadata.dataset.get("revision"))


def task_texts(choice: TaskChoice) -> tuple[str, ...]:
    """Up to 1000 unique texts of the task's test set, without labels, chosen by hash."""
    if choice.local is None:
        raise InputError(f"{choice.name}: maps can be fitted on a task's own texts only if the task is in a data root")
    return tuple(sorted(set(choice.local.texts("test")), key=hash_id)[:MAX_FIT_TEXTS])


def make_task(choice: TaskChoice) -> Any:
    """A new mteb task object: some change their random state, so each scoring uses a new one."""
    task = deepcopy(official_task(choice.name))
    if task is None:
        assert choice.local is not None  # choose_tasks rejects unknown names
        return custom_task(choice.local)
    if choice.local:
        dataset = {"path": choice.local.folder, "revision": choice.local.revision}
        task.metadata = task.metadata.model_copy(update={"dataset": dataset})
    return task


def custom_task(local: LocalTask) -> Any:
    """A task for labelled data that mteb does not know, using mteb's class for its type."""
    from mteb.abstasks.classification import AbsTaskClassification
    from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy
    from mteb.abstasks.pair_classification import AbsTaskPairClassification
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    bases: dict[str, Any] = {
        "Classification": AbsTaskClassification,
        "Clustering": AbsTaskClusteringLegacy,
        "PairClassification": AbsTaskPairClassification,
        "STS": AbsTaskSTS,
        "Reranking": AbsTaskRetrieval,
        "Retrieval": AbsTaskRetrieval,
    }
    fields: dict[str, Any] = {
        "name": local.name,
        "description": f"{local.name}, from local files.",
        "dataset": {"path": local.folder, "revision": local.revision},
        "type": local.type,
        "category": "t2t",
        "eval_splits": ["test"],
        "eval_langs": ["eng-Latn"],
        "main_score": MAIN_SCORES[local.type],
    }
    metadata = TaskMetadata(**fields)
    return type(local.name, (bases[local.type],), {"metadata": metadata})()

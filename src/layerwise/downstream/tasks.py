"""Tasks: the paper's 32, any of mteb by name or type, and labelled data of one's own, as mteb task objects."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layerwise.core.errors import InputError, MissingExtra
from layerwise.downstream.data_root import LocalTask, read_root
from layerwise.inputs.source import hash_id

PAPER_32 = (
    "AmazonCounterfactualClassification", "AmazonReviewsClassification", "Banking77Classification",
    "EmotionClassification", "MTOPDomainClassification", "MTOPIntentClassification", "MassiveIntentClassification",
    "MassiveScenarioClassification", "ToxicConversationsClassification", "TweetSentimentExtractionClassification",
    "ArxivClusteringS2S", "BiorxivClusteringS2S", "MedrxivClusteringS2S", "RedditClustering", "StackExchangeClustering",
    "TwentyNewsgroupsClustering", "SprintDuplicateQuestions", "TwitterSemEval2015", "TwitterURLCorpus",
    "AskUbuntuDupQuestions", "MindSmallReranking", "SciDocsRR", "StackOverflowDupQuestions", "BIOSSES", "SICK-R",
    "STS12", "STS13", "STS14", "STS15", "STS16", "STS17", "STSBenchmark",
)  # fmt: skip
BENCHMARK = "MTEB(eng, v1)"  # holds them all, limited to English and the test split

FITTED_AT_MOST = 1000  # a map hardly changes beyond

OWN_SCORES = {
    "Classification": "accuracy",
    "Clustering": "v_measure",
    "PairClassification": "max_ap",
    "STS": "cosine_spearman",
    "Reranking": "map_at_1000",
    "Retrieval": "ndcg_at_10",
}


@dataclass(frozen=True)
class TaskChoice:
    """One task to score on: mteb's by name, with local data where a data root has them, or one's own."""

    name: str
    type: str
    local: LocalTask | None = None


def require_mteb() -> Any:
    if find_spec("mteb") is None:
        raise MissingExtra("scoring on tasks needs mteb: pip install 'layerwise[mteb]'")
    import mteb

    return mteb


def choose_tasks(wanted: str | Sequence[str], data_root: str | Path | None = None) -> list[TaskChoice]:
    """Tasks from `paper32`, names, types (STS, Classification ...), or `all` of a data root."""
    local = read_root(Path(data_root)) if data_root else {}
    words = [w.strip() for w in (wanted.split(",") if isinstance(wanted, str) else wanted)]
    chosen: dict[str, TaskChoice] = {}
    for name in (name for word in words for name in names_of(word, local)):
        if name in local:
            chosen[name] = TaskChoice(name, local[name].type, local[name])
        elif (task := official_task(name)) is not None:
            chosen[name] = TaskChoice(name, str(task.metadata.type))
        else:
            raise InputError(f"no task {name!r} in mteb; use paper32, a type such as STS, or a name from mteb's list")
    return list(chosen.values())


def names_of(word: str, local: Mapping[str, LocalTask]) -> list[str]:
    """The tasks that one word means."""
    if word == "all" and local:
        return list(local)
    if word == "paper32":
        return [name for name in PAPER_32 if not local or name in local]
    if word in OWN_SCORES:
        if local:
            return [name for name, task in local.items() if task.type == word]
        return [name for name in PAPER_32 if benchmark_tasks()[name].metadata.type == word]
    if local and word not in local:
        raise InputError(f"the data root has no task {word!r}; it has {', '.join(local)}")
    return [word]


@cache
def benchmark_tasks() -> dict[str, Any]:
    """The tasks of the paper's benchmark by name, English and test split only; unloaded, to be copied."""
    return {task.metadata.name: task for task in require_mteb().get_benchmark(BENCHMARK).tasks}


@cache
def official_task(name: str) -> Any:
    """mteb's task of that name, unloaded, or None."""
    if name in benchmark_tasks():
        return benchmark_tasks()[name]
    try:
        return require_mteb().get_task(name, eval_splits=["test"])
    except KeyError:
        return None


def data_revision(choice: TaskChoice) -> str:
    """What tells one version of a task's data from another: a hash of local tables, or the hub's revision."""
    if choice.local:
        return choice.local.revision
    return str(official_task(choice.name).metadata.dataset.get("revision"))


def texts_of(choice: TaskChoice) -> tuple[str, ...]:
    """Up to a thousand different texts of the task's test set, without their labels, by hashed content."""
    if choice.local is None:
        raise InputError(f"{choice.name}: maps can be fitted on a task's own texts only where they are in a data root")
    return tuple(sorted(set(choice.local.texts("test")), key=hash_id)[:FITTED_AT_MOST])


def make_task(choice: TaskChoice) -> Any:
    """A fresh mteb task object: some advance their own random state, so each scoring takes a new one."""
    task = deepcopy(official_task(choice.name))
    if task is None:
        assert choice.local is not None  # choose_tasks refuses names that nobody knows
        return own_task(choice.local)
    if choice.local:
        dataset = {"path": choice.local.folder, "revision": choice.local.revision}
        task.metadata = task.metadata.model_copy(update={"dataset": dataset})
    return task


def own_task(local: LocalTask) -> Any:
    """Labelled data that mteb does not know, scored by mteb's class for its type."""
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
    told: dict[str, Any] = {
        "name": local.name,
        "description": f"{local.name}, from local files.",
        "dataset": {"path": local.folder, "revision": local.revision},
        "type": local.type,
        "category": "t2t",
        "eval_splits": ["test"],
        "eval_langs": ["eng-Latn"],
        "main_score": OWN_SCORES[local.type],
    }
    metadata = TaskMetadata(**told)
    return type(local.name, (bases[local.type],), {"metadata": metadata})()

"""The cost of an evaluation: tasks, texts, forward passes, disk. Needs no network and no weights."""

from collections.abc import Sequence
from typing import Any

from layerwise.runs.summary import counted
from layerwise.verbs.eval.data_root import LocalTask
from layerwise.verbs.eval.tasks import TaskChoice, official_task

TEXT_STATISTICS = ("text", "documents", "queries", "sentence")  # prefixes of text fields in mteb's statistics


def forecast_lines(
    tasks: Sequence[TaskChoice], readouts: int, width: int, bytes_per_number: int, templates: int = 1
) -> list[str]:
    """The cost of scoring these tasks, from mteb's statistics if data are not local. No network."""
    lines, texts, unique = [], 0, 0
    for choice in tasks:
        text_count, unique_count = (
            local_counts(choice.local) if choice.local else published_counts(official_task(choice.name))
        )
        texts, unique = texts + text_count, unique + unique_count
        size = (
            f"{counted(text_count, 'text')}, {unique_count:,} of them different"
            if text_count
            else "its size is not in mteb's statistics"
        )
        lines.append(f"{choice.name} ({choice.type}): {size}")
    disk = unique * readouts * width * bytes_per_number
    lines.append(
        f"{counted(len(tasks), 'task')} x {counted(readouts, 'readout')} = {counted(len(tasks) * readouts, 'score')}"
    )
    each = "one per different text" + (" and template" if templates > 1 else "")
    lines.append(f"{unique * templates:,} forward passes, {each}; layer by layer it would be {texts * readouts:,}")
    lines.append(f"{disk / 1e9:,.1f} GB of vectors on disk (--vectors evict keeps only one task at a time)")
    return lines


def local_counts(local: LocalTask) -> tuple[int, int]:
    """Number of texts and of unique texts in a task's files."""
    texts = local.texts()
    return len(texts), len(set(texts))


def published_counts(task: Any) -> tuple[int, int]:
    """Number of texts and of unique texts in the test and train splits, from mteb's descriptive statistics."""
    stats = task.metadata.descriptive_stats if task is not None else None
    texts = unique = 0
    for split, split_stats in (stats or {}).items():
        if split not in ("test", "train"):
            continue
        stats_of_subset = (
            split_stats.get("hf_subset_descriptive_stats", {}).get(task.hf_subsets[0], split_stats)
            if task.hf_subsets
            else split_stats
        )
        counted = [
            v
            for k, v in stats_of_subset.items()
            if isinstance(v, dict) and "unique_texts" in v and k.startswith(TEXT_STATISTICS)
        ]
        retrieval = stats_of_subset.get("num_documents", 0) + stats_of_subset.get("num_queries", 0)
        texts += retrieval or stats_of_subset.get("num_samples", 0) * max(1, len(counted))
        unique += sum(v["unique_texts"] for v in counted)
    return texts, unique or texts

"""The cost of an evaluation: tasks, texts, forward passes, disk. Needs no network and no weights."""

from collections.abc import Sequence
from typing import Any

from layerwise.downstream.data_root import LocalTask
from layerwise.downstream.tasks import TaskChoice, official_task

TEXTS = ("text", "documents", "queries", "sentence")  # prefixes of text fields in mteb's statistics


def forecast_lines(tasks: Sequence[TaskChoice], readouts: int, width: int, bytes_per_number: int) -> list[str]:
    """The cost of scoring these tasks, from mteb's statistics if data are not local. No network."""
    lines, texts, unique = [], 0, 0
    for choice in tasks:
        one, other = local_counts(choice.local) if choice.local else described_counts(official_task(choice.name))
        texts, unique = texts + one, unique + other
        size = f"{one:,} texts, {other:,} of them different" if one else "its size is not in mteb's statistics"
        lines.append(f"{choice.name} ({choice.type}): {size}")
    disk = unique * readouts * width * bytes_per_number
    lines.append(f"{len(tasks)} tasks x {readouts} readouts = {len(tasks) * readouts:,} scores")
    lines.append(f"{unique:,} forward passes, one per different text; layer by layer it would be {texts * readouts:,}")
    lines.append(f"{disk / 1e9:,.1f} GB of vectors on disk (--vectors evict keeps only one task at a time)")
    return lines


def local_counts(local: LocalTask) -> tuple[int, int]:
    """Number of texts and of unique texts in a task's files."""
    texts = local.texts()
    return len(texts), len(set(texts))


def described_counts(task: Any) -> tuple[int, int]:
    """Number of texts and of unique texts in the test and train splits, from mteb's descriptive statistics."""
    stats = task.metadata.descriptive_stats if task is not None else None
    texts = unique = 0
    for split, told in (stats or {}).items():
        if split not in ("test", "train"):
            continue
        part = told.get("hf_subset_descriptive_stats", {}).get(task.hf_subsets[0], told) if task.hf_subsets else told
        counted = [v for k, v in part.items() if isinstance(v, dict) and "unique_texts" in v and k.startswith(TEXTS)]
        retrieval = part.get("num_documents", 0) + part.get("num_queries", 0)
        texts += retrieval or part.get("num_samples", 0) * max(1, len(counted))
        unique += sum(v["unique_texts"] for v in counted)
    return texts, unique or texts

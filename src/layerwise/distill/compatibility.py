"""The index question: can queries of the student search vectors of the teacher, and the other way round?

Without labels, a text is divided: its first half is the query and its second half the document to find among those of
all other texts. What counts is the loss against the teacher, which searches its own vectors in the same way.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from layerwise.distill.student import Vectors
from layerwise.distill.texts import PromptedText

FEWEST_WORDS = 6  # of a text that is divided
LARGEST_LOSS = 0.02  # of the mean reciprocal rank, at which an index can still be used
FEWEST_SEARCHED = 50  # texts, for an answer
FEWEST_TIMES_CHANCE = 5  # the original's own MRR, relative to that of random ranks: below, ranks say nothing


@dataclass(frozen=True)
class Search:
    """The mean reciprocal rank of a search, and its loss against the teacher with a 95 % interval (paired)."""

    mrr: float
    loss: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Compatibility:
    """How the student's vectors fit those of the teacher, as `compatibility` in layerwise.json."""

    texts: int
    mean_cosine: float  # between the two vectors of a text
    searched: int  # texts that were divided into query and document
    teacher_mrr: float
    student_queries: Search  # in the teacher's documents
    student_documents: Search  # with the teacher's queries
    student_alone: Search  # queries and documents of the student
    keep_index: bool
    answer: str

    def to_record(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self)


def halves(
    texts: Sequence[PromptedText], prompts: tuple[str, str] | None = None
) -> tuple[list[PromptedText], list[PromptedText]]:
    """Queries and documents: the first and the second half of each text that has enough words.

    `prompts` are those of queries and of documents; without them, both halves have the prompt of their text.
    """
    queries, documents = [], []
    for item in texts:
        words = item.text.split()
        if len(words) >= FEWEST_WORDS:
            middle = len(words) // 2
            of_query, of_document = prompts or (item.prompt, item.prompt)
            queries.append(PromptedText(" ".join(words[:middle]), of_query))
            documents.append(PromptedText(" ".join(words[middle:]), of_document))
    return queries, documents


def reciprocal_ranks(queries: Tensor, documents: Tensor, similarity: str = "") -> Tensor:
    """1 over the rank of each query's own document among all documents; those as close as it count as before it.

    They are compared as the model's vectors are: by cosine, unless it ships another `similarity`.
    """
    queries, documents = queries.double(), documents.double()
    if not similarity:
        queries, documents = (torch.nn.functional.normalize(rows, dim=1) for rows in (queries, documents))
    closeness = queries @ documents.mT
    if similarity in ("euclidean", "manhattan"):
        closeness = -torch.cdist(queries, documents, p=2 if similarity == "euclidean" else 1)
    return 1 / (closeness >= closeness.diagonal().unsqueeze(1)).sum(dim=1).double()


def compare_ranks(found: Tensor, baseline: Tensor) -> Search:
    losses = (baseline - found).tolist()
    mean = statistics.fmean(losses)
    error = 1.96 * statistics.stdev(losses) / len(losses) ** 0.5
    return Search(float(found.mean()), mean, (mean - error, mean + error))


def check_compatibility(
    teacher: Vectors,
    student: Vectors,
    texts: Sequence[PromptedText],
    similarity: str = "",
    prompts: tuple[str, str] | None = None,
) -> Compatibility | None:
    """Compares both models' vectors on texts that neither was fitted on; None if fewer than 10 can be divided."""
    queries, documents = halves(texts, prompts)
    if len(queries) < 10:
        return None
    cosine = torch.nn.functional.cosine_similarity(teacher(texts).double(), student(texts).double(), dim=1)
    teacher_queries, teacher_documents = teacher(queries), teacher(documents)
    student_queries, student_documents = student(queries), student(documents)
    ranks = partial(reciprocal_ranks, similarity=similarity)
    baseline = ranks(teacher_queries, teacher_documents)
    by_queries = compare_ranks(ranks(student_queries, teacher_documents), baseline)
    by_documents = compare_ranks(ranks(teacher_queries, student_documents), baseline)
    alone = compare_ranks(ranks(student_queries, student_documents), baseline)
    unknown = why_unknown(len(queries), float(baseline.mean()))
    keep = not unknown and by_queries.loss <= LARGEST_LOSS
    return Compatibility(
        len(texts), float(cosine.mean()), len(queries), float(baseline.mean()), by_queries, by_documents, alone, keep,
        unknown or answer_words(by_queries, by_documents),
    )  # fmt: skip


def why_unknown(searched: int, teacher_mrr: float) -> str:
    """Why these texts cannot answer the question; "" if they can."""
    if searched < FEWEST_SEARCHED:
        return f"not known: only {searched} texts were searched, and {FEWEST_SEARCHED} are needed; use more texts"
    chance = sum(1 / rank for rank in range(1, searched + 1)) / searched
    if teacher_mrr < FEWEST_TIMES_CHANCE * chance:
        return "not known: the original itself hardly finds the second half of these texts; use longer ones"
    return ""


def answer_words(by_queries: Search, by_documents: Search) -> str:
    """What to do with an index of the original's vectors."""
    low, high = by_queries.interval
    decided = high <= LARGEST_LOSS or low > LARGEST_LOSS
    doubt = "" if decided else f" (the interval includes {LARGEST_LOSS}: use more texts to be sure)"
    if by_queries.loss > LARGEST_LOSS:
        return f"re-embed your documents with the small model before you search them with it{doubt}"
    if by_documents.loss > LARGEST_LOSS:
        return f"you can keep your index for queries; embed new documents with the original{doubt}"
    return f"you can keep your index for queries, and add documents of the small model to it{doubt}"

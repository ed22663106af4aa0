"""The index question: what to do with vectors of the original's documents once a small model is used?

Queries search documents, each with vectors of the original (old) or of the small model (new): old queries in old
documents, new in old, old in new, new in new. The advice follows from these four numbers and their intervals alone.
Agreement is also given by kind and by length of texts, since a mean over all texts may hide what is lost on some.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.inputs.text import demo_texts
from layerwise.verbs.shrink.student import Vectors
from layerwise.verbs.shrink.texts import PART_WORDS, PromptedText, TextSplit

SHORT_WORDS, MEDIUM_WORDS = 8, 40  # the longest texts of the first two of three lengths
WORST_SHARE = 0.05
FEWEST_IN_GROUP = 10  # texts, for a mean that is worth showing
MUCH_LESS = 0.05  # of cosine, below the rest, that is worth a warning
ALMOST_ALL = 0.95
ALL, PARTS = "all", f"parts of texts ({PART_WORDS[0]} to {PART_WORDS[1]} words)"

GROUPS: dict[str, Callable[[PromptedText], bool]] = {
    ALL: lambda item: True,
    "queries": lambda item: item.kind == "query",
    "documents": lambda item: item.kind == "document",
    "other texts": lambda item: item.kind == "other",
    f"texts of up to {SHORT_WORDS} words": lambda item: word_count(item) <= SHORT_WORDS,
    f"texts of {SHORT_WORDS + 1} to {MEDIUM_WORDS} words": lambda item: SHORT_WORDS < word_count(item) <= MEDIUM_WORDS,
    f"texts of more than {MEDIUM_WORDS} words": lambda item: word_count(item) > MEDIUM_WORDS,
}


@dataclass(frozen=True)
class Group:
    """How much the vectors of the two models agree on texts of one kind or length."""

    name: str
    texts: int
    mean_cosine: float
    worst_cosine: float  # 5 % of the texts have a lower one


@dataclass(frozen=True)
class GroupedAgreement:
    """The agreement on held-out texts, as `agreement` of a shrunk or static model in layerwise.json."""

    groups: tuple[Group, ...]  # the first has all texts
    warnings: tuple[str, ...]

    def to_record(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self)


def word_count(item: PromptedText) -> int:
    return len(item.text.split())


def grouped_agreement(
    teacher: Vectors, student: Vectors, split: TextSplit, document_prompt: str = "", *, centered: bool = False
) -> GroupedAgreement:
    """Compares the vectors of the texts to check, group by group, and of parts of them as one more group.

    `centered`: after both means are subtracted.
    """
    cosines = cosines_of(teacher, student, split.check, centered=centered)
    groups = [
        group_of(name, cosines[chosen])
        for name, belongs in GROUPS.items()
        if (chosen := torch.tensor([belongs(item) for item in split.check])).sum() >= FEWEST_IN_GROUP or name == ALL
    ]
    groups = [group for group in groups if group.name == ALL or group.texts < len(split.check)]
    warnings = warnings_of(groups, "if they matter, add more of them")
    if len(split.parts) >= FEWEST_IN_GROUP:
        groups.append(group_of(PARTS, cosines_of(teacher, student, split.parts, centered=centered)))
        warnings += warnings_of([groups[0], groups[-1]], "if your queries are as short, add some with --queries FILE")
    hint = one_kind_hint([*split.fit, *split.held_out, *split.check])
    if "--documents" in hint:
        with suppress(InputError):  # a tokenizer may know none of their words
            longer = [PromptedText(text, document_prompt) for text in demo_texts() if len(text.split()) >= LONG_WORDS]
            cosines = cosines_of(teacher, student, longer, centered=centered)
            groups.append(group_of(f"English demo texts of {LONG_WORDS} words or more", cosines))
            hint = f"on {groups[-1].name}, the mean cosine is {groups[-1].mean_cosine:.2f}; {hint}"
    return GroupedAgreement(tuple(groups), tuple(filter(None, (*warnings, hint))))


def cosines_of(teacher: Vectors, student: Vectors, texts: Sequence[PromptedText], *, centered: bool) -> Tensor:
    """The cosine between the two vectors of each text (N,)."""
    old, new = (vectors(texts).double() for vectors in (teacher, student))
    if centered:
        old, new = old - old.mean(dim=0), new - new.mean(dim=0)
    return torch.nn.functional.cosine_similarity(old, new, dim=1)


def group_of(name: str, cosines: Tensor) -> Group:
    return Group(name, len(cosines), float(cosines.mean()), float(cosines.quantile(WORST_SHARE)))


def warnings_of(groups: Sequence[Group], advice: str) -> list[str]:
    """A sentence with advice for the group that agrees much less than all texts, if there is one."""
    all_texts, *others = groups
    worst = min(others, key=lambda group: group.mean_cosine, default=all_texts)
    if worst.mean_cosine >= all_texts.mean_cosine - MUCH_LESS:
        return []
    return [
        f"{worst.name} agree much less with the original (mean cosine {worst.mean_cosine:.2f}) than all texts "
        f"({all_texts.mean_cosine:.2f}); {advice}"
    ]


def one_kind_hint(texts: Sequence[PromptedText]) -> str:
    """What to add where the texts are of one kind only; "" where they are not."""
    kinds = {item.kind for item in texts}
    long = sum(map(is_long, texts)) / len(texts)
    if kinds == {"query"} or ("document" not in kinds and long < LONG_SHARE):
        words = "all texts are queries" if kinds == {"query"} else (
            f"{100 * (1 - long):.0f} % of the texts have fewer than {LONG_WORDS} words"
        )  # fmt: skip
        return f"{words}: if the model will also read documents, add some with --documents FILE"
    if kinds == {"document"} or ("query" not in kinds and long > ALMOST_ALL):
        words = "all texts are documents" if kinds == {"document"} else (
            f"{100 * long:.0f} % of the texts have {LONG_WORDS} words or more"
        )  # fmt: skip
        return f"{words}: if the model will also read short queries, add some with --queries FILE"
    return ""


LONG_WORDS = 20  # of a text that may be like a document; only such texts are divided
LONG_SHARE = 0.2  # of the texts of unknown kind: with fewer long ones, they are taken to be queries
MOST_DOCUMENTS = 2000  # that are searched; held-out ones first
LARGEST_LOSS = 0.02  # of the mean reciprocal rank, at which an index can still be used
LARGEST_LOSS_OF_FIRST = 0.07  # of finding what the original finds first; about 0.02 of the MRR (docs/shrink.md)
FEWEST_SEARCHED = 50  # queries, for an answer
FEWEST_TIMES_CHANCE = 5  # the original's own MRR, relative to that of random ranks: below, ranks say nothing

SearchKind = Literal["pairs", "first", "halves"]
Action = Literal["keep", "re-embed", "original", "unknown"]
WHAT_TO_PASS = "pass --queries FILE and --documents FILE, or --pairs FILE with queries and their documents"


@dataclass(frozen=True)
class Mean:
    """A mean over queries with its 95 % interval."""

    mean: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Case:
    """The mean reciprocal rank of a search, and its loss against the original's own search (paired)."""

    mrr: Mean
    loss: Mean


@dataclass(frozen=True)
class Cases:
    """The searches; in each name the queries come first and the documents second."""

    old_old: Case
    new_old: Case
    old_new: Case
    new_new: Case
    mixed: Case  # new queries, where every second document is new
    gain: Mean  # of new_new over new_old: what re-embedding the documents gains (paired)


@dataclass(frozen=True)
class Advice:
    """What to do with an index of the original's vectors."""

    action: Action
    answer: str


@dataclass(frozen=True)
class SearchTest:
    """Queries and documents, and which document is to be found."""

    kind: SearchKind
    queries: tuple[PromptedText, ...]
    documents: tuple[PromptedText, ...]
    targets: tuple[tuple[int, ...], ...] = ()  # places of each query's documents; () for what the original finds first


@dataclass(frozen=True)
class Compatibility:
    """Whether an index of the original's vectors can be kept, as `compatibility` in layerwise.json."""

    test: SearchKind | None
    searched: int  # queries
    documents: int
    cases: Cases | None
    advice: Action
    answer: str

    def to_record(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self)


def check_compatibility(
    teacher: Vectors,
    student: Vectors,
    split: TextSplit,
    similarity: str = "",
    prompts: tuple[str, str] | None = None,
    remedy: str = "keep more blocks",
    re_embedded: tuple[Vectors, str] | None = None,
) -> Compatibility:
    """Searches with both models' vectors of texts that neither was fitted on; `remedy` is how to lose less.

    `re_embedded` gives the vectors, and their similarity, that an index made anew would have: those of another model
    without the map that takes them to the original's.
    """
    test = choose_test(split, prompts)
    if isinstance(test, str):
        return Compatibility(None, 0, 0, None, "unknown", test)
    counts = len(test.queries), len(test.documents)
    if counts[0] < FEWEST_SEARCHED:
        return Compatibility(test.kind, *counts, None, "unknown", too_few(test))
    cases = search(test, teacher, student, similarity, re_embedded)
    if cases.old_old.mrr.mean < FEWEST_TIMES_CHANCE * chance(counts[1]):
        advice = Advice("unknown", f"not known: the original itself hardly finds {TARGETS[test.kind]}; {WHAT_TO_PASS}")
    else:
        largest = LARGEST_LOSS_OF_FIRST if test.kind == "first" else LARGEST_LOSS
        advice = advise(cases, largest, remedy, "small" if re_embedded is None else "new")
        advice = replace(advice, answer=advice.answer + BASIS[test.kind])
    return Compatibility(test.kind, *counts, cases, advice.action, advice.answer)


# What is searched

TARGETS: dict[SearchKind, str] = {
    "pairs": "the documents of your pairs",
    "first": "any document",
    "halves": "the second half of these texts",
}
BASIS: dict[SearchKind, str] = {
    "pairs": "",
    "first": " (judged by what the original finds first; --pairs FILE would show what is really lost)",
    "halves": " (judged by halves of your long texts; --pairs FILE would show what is really lost)",
}


def choose_test(split: TextSplit, prompts: tuple[str, str] | None = None) -> SearchTest | str:
    """The best test that the texts allow, or why there is none.

    Pairs show what is lost. Without them, queries search for the document that the original finds first. Without
    queries or documents, long texts are divided: the first half is the query and the second half the document. Short
    texts are never divided: halves of queries say nothing about documents.
    """
    texts = [*split.check, *split.held_out, *split.fit]
    known = [item for item in texts if item.kind == "document"]
    if split.pairs:
        own = dict.fromkeys(document for pair in split.pairs for document in pair.documents)
        others = (item for item in texts if item.kind == "other" and is_long(item))
        more = [*known, *(item._replace(prompt=prompts[1]) if prompts else item for item in others)]
        documents = tuple(dict.fromkeys([*own, *more]))[: max(MOST_DOCUMENTS, len(own))]
        places = {document: place for place, document in enumerate(documents)}
        targets = tuple(tuple(places[document] for document in pair.documents) for pair in split.pairs)
        return SearchTest("pairs", tuple(pair.query for pair in split.pairs), documents, targets)
    queries = tuple(item for item in split.check if item.kind == "query")
    if queries and known:
        return SearchTest("first", queries, tuple(known[:MOST_DOCUMENTS]))
    not_queries = [item for item in split.check if item.kind != "query"]
    long = [item for item in not_queries if is_long(item)]
    if not long or (not known and len(long) < LONG_SHARE * len(not_queries)):
        return f"not known: the texts are short, and queries say nothing about documents; {WHAT_TO_PASS}"
    first, second = halves(long, prompts)
    return SearchTest("halves", tuple(first), tuple(second), tuple((place,) for place in range(len(long))))


def is_long(item: PromptedText) -> bool:
    """True for a text that may be like a document."""
    return len(item.text.split()) >= LONG_WORDS


def halves(
    texts: Sequence[PromptedText], prompts: tuple[str, str] | None = None
) -> tuple[list[PromptedText], list[PromptedText]]:
    """Queries and documents: the first and the second half of each text.

    `prompts` are those of queries and of documents; without them, both halves have the prompt of their text.
    """
    queries, documents = [], []
    for item in texts:
        words = item.text.split()
        middle = len(words) // 2
        of_query, of_document = prompts or (item.prompt, item.prompt)
        queries.append(PromptedText(" ".join(words[:middle]), of_query, "query"))
        documents.append(PromptedText(" ".join(words[middle:]), of_document, "document"))
    return queries, documents


def too_few(test: SearchTest) -> str:
    things = {"pairs": "pairs", "first": "queries", "halves": f"texts of {LONG_WORDS} words or more"}[test.kind]
    more = f"; {WHAT_TO_PASS}" if test.kind == "halves" else ""
    return (
        f"not known: only {len(test.queries)} {things} were held out to search with, and {FEWEST_SEARCHED} are needed; "
        f"use more{more}"
    )


def chance(documents: int) -> float:
    """The mean reciprocal rank of a random order."""
    return sum(1 / rank for rank in range(1, documents + 1)) / documents


# What is found


def search(
    test: SearchTest, teacher: Vectors, student: Vectors, similarity: str = "",
    re_embedded: tuple[Vectors, str] | None = None,
) -> Cases:  # fmt: skip
    """The four searches, and that of an index to which documents of the small model were added."""
    (old_queries, old_documents), (new_queries, new_documents) = (
        (vectors(test.queries), vectors(test.documents)) for vectors in (teacher, student)
    )
    compare = partial(closeness, similarity=similarity)
    old_old, new_old = compare(old_queries, old_documents), compare(new_queries, old_documents)
    old_new, new_in_space = compare(old_queries, new_documents), compare(new_queries, new_documents)
    new_new = new_in_space
    if re_embedded is not None:
        own, own_similarity = re_embedded
        new_new = closeness(own(test.queries), own(test.documents), own_similarity)
    if test.targets:
        wanted = torch.zeros(old_old.shape, dtype=torch.bool)
        for query, places in enumerate(test.targets):
            wanted[query, list(places)] = True
    else:
        wanted = torch.nn.functional.one_hot(old_old.argmax(dim=1), old_old.shape[1]).bool()
    ranks = partial(reciprocal_ranks, wanted=wanted)
    every_second = torch.arange(old_old.shape[1]) % 2 == 0
    mixed = [ranks(torch.where(chosen, new_in_space, new_old)) for chosen in (every_second, ~every_second)]
    baseline, by_queries, by_documents, alone = map(ranks, (old_old, new_old, old_new, new_new))

    def case(found: Tensor) -> Case:
        return Case(mean_of(found), mean_of(baseline - found))

    return Cases(
        case(baseline), case(by_queries), case(by_documents), case(alone), case((mixed[0] + mixed[1]) / 2),
        mean_of(alone - by_queries),
    )  # fmt: skip


def closeness(queries: Tensor, documents: Tensor, similarity: str = "") -> Tensor:
    """How close each document (M, E) is to each query (N, E): (N, M).

    They are compared as the model's vectors are: by cosine, unless it ships another `similarity`.
    """
    queries, documents = queries.double(), documents.double()
    if not similarity:
        queries, documents = (torch.nn.functional.normalize(rows, dim=1) for rows in (queries, documents))
    if similarity in ("euclidean", "manhattan"):
        return -torch.cdist(queries, documents, p=2 if similarity == "euclidean" else 1)
    return queries @ documents.mT


def reciprocal_ranks(close: Tensor, wanted: Tensor) -> Tensor:
    """1 over the rank of the first wanted document of each query; those as close as it count as before it."""
    best = close.masked_fill(~wanted, -torch.inf).max(dim=1, keepdim=True).values
    before = ((close >= best) & ~wanted).sum(dim=1)
    return 1 / (1 + before).double()


def mean_of(values: Tensor) -> Mean:
    numbers = values.tolist()
    mean = statistics.fmean(numbers)
    error = 1.96 * statistics.stdev(numbers) / len(numbers) ** 0.5
    return Mean(mean, (mean - error, mean + error))


# What to do


def advise(cases: Cases, largest_loss: float, remedy: str, which: str = "small") -> Advice:
    """The advice, by the losses and their intervals alone; `which` model is not the original, in a word."""
    lost = cases.new_old.loss
    low, high = lost.interval
    if lost.mean <= largest_loss:
        keep = f"you can keep your index and search it with the {which} model"
        if high > largest_loss:
            keep = (
                f"you can probably keep your index and search it with the {which} model (the loss of {lost.mean:.3f} "
                f"may be above {largest_loss}: use more texts to be sure)"
            )
        return Advice("keep", "; ".join([keep, *words_on_documents(cases, largest_loss, which)]))
    loses = f"searching your index with the {which} model {'' if low > largest_loss else 'probably '}loses too much"
    gain, left = cases.gain, cases.new_new.loss
    if gain.interval[0] <= 0:
        worse = f"loses {-gain.mean:.3f} more" if gain.interval[1] < 0 else "is not better"
        return Advice(
            "original",
            f"keep the original model: {loses} ({lost.mean:.3f}), and re-embedding your documents with it {worse}. To "
            f"lose less, {remedy}",
        )
    if left.mean > largest_loss:
        return Advice(
            "original",
            f"keep the original model: {loses} ({lost.mean:.3f}), and after re-embedding your documents with it, "
            f"{left.mean:.3f} would still be lost. To lose less, {remedy}",
        )
    doubt = "" if left.interval[1] <= largest_loss else (
        f" (95 %: {left.interval[0]:.3f} to {left.interval[1]:.3f}; use more texts to be sure that it is not above "
        f"{largest_loss})"
    )  # fmt: skip
    return Advice(
        "re-embed",
        f"re-embed your documents with the {which} model before you search them with it: {loses} ({lost.mean:.3f}), "
        f"and with re-embedded documents {lost_or_gained(left.mean)}{doubt}",
    )


def lost_or_gained(loss: float) -> str:
    return f"the loss is {loss:.3f}" if loss >= 0 else f"{-loss:.3f} is gained"


def words_on_documents(cases: Cases, largest_loss: float, which: str) -> list[str]:
    """What to do with new and old documents where the index is kept."""
    words = ["embed new documents with the original too"]
    if cases.mixed.loss.interval[1] <= largest_loss:
        words = ["new documents may be embedded with either model"]
    gain = cases.gain
    if gain.interval[1] < 0:
        words.append(f"do not re-embed your documents with the {which} model: that would lose {-gain.mean:.3f} more")
    if gain.interval[0] > 0:
        words.append(f"re-embedding your documents with the {which} model would gain {gain.mean:.3f}")
    return words

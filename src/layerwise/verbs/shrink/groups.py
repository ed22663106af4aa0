"""Agreement of two models by kind and by length of texts: a mean over all texts may hide what is lost on some."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from layerwise.core.errors import InputError
from layerwise.inputs.text import demo_texts
from layerwise.verbs.shrink.compatibility import LONG_SHARE, LONG_WORDS, is_long
from layerwise.verbs.shrink.student import Vectors
from layerwise.verbs.shrink.texts import PromptedText, TextSplit

SHORT_WORDS, MEDIUM_WORDS = 8, 40  # the longest texts of the first two of three lengths
WORST_SHARE = 0.05
FEWEST_IN_GROUP = 10  # texts, for a mean that is worth showing
MUCH_LESS = 0.05  # of cosine, below the rest, that is worth a warning
ALMOST_ALL = 0.95
ALL = "all"

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
    """Compares the vectors of the texts to check, group by group; `centered`: after both means are subtracted."""
    cosines = cosines_of(teacher, student, split.check, centered=centered)
    groups = [
        group_of(name, cosines[chosen])
        for name, belongs in GROUPS.items()
        if (chosen := torch.tensor([belongs(item) for item in split.check])).sum() >= FEWEST_IN_GROUP or name == ALL
    ]
    groups = [group for group in groups if group.name == ALL or group.texts < len(split.check)]
    warnings = warnings_of(groups)
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


def warnings_of(groups: Sequence[Group]) -> list[str]:
    """A sentence for the group that agrees much less than the mean, if there is one."""
    all_texts, *others = groups
    worst = min(others, key=lambda group: group.mean_cosine, default=all_texts)
    if worst.mean_cosine >= all_texts.mean_cosine - MUCH_LESS:
        return []
    return [
        f"{worst.name} agree much less with the original (mean cosine {worst.mean_cosine:.2f}) than all texts "
        f"({all_texts.mean_cosine:.2f}); if they matter, add more of them"
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

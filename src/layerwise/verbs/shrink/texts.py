"""The texts for shrinking a model: of which kind they are, with which prompt, and which are fitted on and checked."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from layerwise.core.errors import InputError
from layerwise.inputs.modalities import open_source
from layerwise.inputs.options import PairsLike
from layerwise.inputs.pairs import read_pairs
from layerwise.inputs.source import DataLike

Kind = Literal["query", "document", "other"]
KINDS: tuple[Kind, ...] = ("query", "document", "other")  # a text that is given as several counts as the first
FEWEST_TEXTS = 50
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 500  # of the texts of a kind, for choosing; the same number for checking
TESTED_PAIRS = 200  # queries with their documents: half of them up to this number, then as for other texts
PART_WORDS = (2, 9)  # of a part of a text, at least and at most


class PromptedText(NamedTuple):
    """A text, the prompt that the model reads before it, and what it is used for."""

    text: str
    prompt: str = ""
    kind: Kind = "other"


class Pair(NamedTuple):
    """A query, and the documents that answer it."""

    query: PromptedText
    documents: tuple[PromptedText, ...]


@dataclass(frozen=True)
class GivenTexts:
    """The texts of a call: of any kind, queries, documents, and queries with a document that answers them."""

    name: str
    texts: Sequence[str] = ()
    queries: Sequence[str] = ()
    documents: Sequence[str] = ()
    pairs: Sequence[tuple[str, str]] = ()

    @property
    def by_kind(self) -> dict[Kind, list[str]]:
        """The texts of each kind; both sides of the pairs belong to theirs."""
        return {
            "query": [*self.queries, *(query for query, _ in self.pairs)],
            "document": [*self.documents, *(document for _, document in self.pairs)],
            "other": list(self.texts),
        }


@dataclass(frozen=True)
class TextSplit:
    """Disjoint texts: `fit` for fitting and training, `held_out` for choosing, `check` for the reported figures.

    The texts of `pairs` are among those of `check`. `parts` are a few words of each text of `check`; none of them is a
    text of `fit` or `held_out`.
    """

    fit: tuple[PromptedText, ...]
    held_out: tuple[PromptedText, ...]
    check: tuple[PromptedText, ...]
    pairs: tuple[Pair, ...] = ()
    parts: tuple[PromptedText, ...] = ()


def open_given(
    data: DataLike | None,
    queries: DataLike | None = None,
    documents: DataLike | None = None,
    pairs: PairsLike | None = None,
) -> GivenTexts | None:
    """Reads the texts of a call; None if there are none."""
    sources = [open_source(given) if given is not None else None for given in (data, queries, documents)]
    name, rows = read_pairs(pairs) if pairs is not None else ("", [])
    names = [*(source.name for source in sources if source is not None), *([name] if name else [])]
    texts, known_queries, known_documents = ([x.text for x in source] if source else [] for source in sources)
    return GivenTexts(", ".join(names), texts, known_queries, known_documents, rows) if names else None


def split_texts(
    given: GivenTexts | Iterable[str],
    prompts: Sequence[str],
    seed: int,
    search_prompts: tuple[str, str] | None = None,
) -> TextSplit:
    """Divides the distinct texts in an order that depends on the seed and on the texts alone.

    Of texts that differ only in case or white space one is kept, so that none is both fitted on and checked with. Of
    each kind, the same share is held out. Queries and documents are read with `search_prompts`, if the model has them,
    else with the first of `prompts`; other texts with one of `prompts` in turn.
    """
    given = given if isinstance(given, GivenTexts) else GivenTexts("", list(given))
    by_words: dict[str, tuple[str, Kind]] = {}
    for kind, texts in given.by_kind.items():
        for text in texts:
            words = words_of(text)
            same, first_kind = by_words.get(words, (text, kind))
            by_words[words] = min(text, same), first_kind  # whatever their order
    by_words.pop("", None)
    if len(by_words) < FEWEST_TEXTS:
        raise InputError(
            f"this needs at least {FEWEST_TEXTS} different texts to fit and check, got {len(by_words)}; pass a "
            "file with more (some thousands give a better model)"
        )
    ordered = sorted(by_words, key=lambda words: shuffle_key(by_words[words][0], seed))
    of_kind = dict(zip(KINDS, search_prompts or (prompts[0], prompts[0]), strict=False))
    turn = {words: i for i, words in enumerate(w for w in ordered if by_words[w][1] == "other")}

    def prompted(words: str, kind: Kind | None = None) -> PromptedText:
        text, own_kind = by_words[words]
        kind = kind or own_kind
        return PromptedText(text, of_kind[kind] if kind in of_kind else prompts[turn[words] % len(prompts)], kind)

    tested = tested_pairs(given.pairs, ordered)
    checked = {words for query, documents in tested.items() for words in (query, *documents)}
    held_out: set[str] = set()
    for kind in KINDS:
        left = [words for words in ordered if by_words[words][1] == kind and words not in checked]
        held = min(MOST_HELD_OUT, int(HELD_OUT_SHARE * len(left)))
        held_out.update(left[:held])
        checked.update(left[held : 2 * held])
    check = tuple(prompted(words) for words in ordered if words in checked)
    parts = {words_of(part.text): part for part in parts_of(check, of_kind["query"], random.Random(seed))}
    return TextSplit(
        tuple(prompted(words) for words in ordered if words not in held_out | checked),
        tuple(prompted(words) for words in ordered if words in held_out),
        check,
        tuple(
            Pair(prompted(query, "query"), tuple(prompted(words, "document") for words in documents))
            for query, documents in tested.items()
        ),
        tuple(part for words, part in parts.items() if words in checked or words not in by_words),
    )


def tested_pairs(pairs: Sequence[tuple[str, str]], ordered: Sequence[str]) -> dict[str, list[str]]:
    """The queries to test with, each with all its documents, as their words."""
    documents: dict[str, dict[str, None]] = {}
    for query, document in pairs:
        first, second = words_of(query), words_of(document)
        if first and second and first != second:
            documents.setdefault(first, {})[second] = None
    tested = min(MOST_HELD_OUT, max(int(HELD_OUT_SHARE * len(documents)), min(TESTED_PAIRS, len(documents) // 2)))
    return {query: sorted(documents[query]) for query in [words for words in ordered if words in documents][:tested]}


def parts_of(texts: Sequence[PromptedText], query_prompt: str, generator: random.Random) -> Iterator[PromptedText]:
    """A few consecutive words of each text that has more; a part of a document is read as a query."""
    for item in texts:
        words, count = item.text.split(), generator.randint(*PART_WORDS)
        if len(words) > count:
            first = generator.randrange(len(words) - count + 1)
            part = item._replace(text=" ".join(words[first : first + count]))
            yield part._replace(prompt=query_prompt, kind="query") if item.kind == "document" else part


def words_of(text: str) -> str:
    """What two texts have in common that differ only in case or white space."""
    return " ".join(text.split()).casefold()


def shuffle_key(text: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()

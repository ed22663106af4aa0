"""Whether the bundled sentences can judge: the tokenizer has to read them, and the user's texts should be like them."""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from layerwise.core.errors import InputError
from layerwise.verbs.pick.options import Language
from layerwise.verbs.pick.probes import LANGUAGES, proxy_texts

# Measured on 17 tokenizers (studies/recipes/README.md, "Which tokenizers can read the bundled sentences").
MOST_UNREAD = 0.02  # share of tokens that are unknown, or bytes of a letter that is not in the vocabulary
MOST_ALIKE = 0.01  # share of texts that get the ids of another text
MOST_TOKENS_PER_LETTER = 0.9  # English tokenizers: 0.2 to 0.3; one token per letter: 1
BYTE_TOKEN = re.compile(r"<0x[0-9A-F]{2}>")
WORD = re.compile(r"\b[^\W\d_]+\b")
COMMON_WORDS = 50
FEWEST_COMMON = 0.2  # share of the words of a text; 29 English data sets have 0.25 to 0.48
FEWEST_WORDS = 100  # fewer say nothing about the language
MOST_TEXTS = 300


@dataclass(frozen=True)
class TokenizerFit:
    """How a tokenizer reads some texts.

    Attributes:
        unknown: share of tokens that stand for anything the tokenizer does not know.
        byte_fallback: share of tokens that are single bytes of letters that are not in its vocabulary.
        alike: share of texts with the same ids as another text.
        tokens_per_letter: tokens for each character that is no white space.
        spells: whether its vocabulary has single characters only, so that it reads every language letter by letter.
    """

    unknown: float
    byte_fallback: float
    alike: float
    tokens_per_letter: float
    spells: bool

    @property
    def problems(self) -> list[str]:
        """Why texts that are read in this way cannot judge a model; nothing where they can."""
        found = []
        if self.unknown > MOST_UNREAD:
            found.append(f"{percent(self.unknown)} of the tokens are unknown to its tokenizer (allowed: 2 %)")
        if self.byte_fallback > MOST_UNREAD:
            share = percent(self.byte_fallback)
            found.append(f"{share} of the tokens are single bytes of unknown letters (allowed: 2 %)")
        if self.alike > MOST_ALIKE:
            found.append(f"{percent(self.alike)} of the texts have the same tokens as another text (allowed: 1 %)")
        if self.tokens_per_letter > MOST_TOKENS_PER_LETTER and not self.spells:
            found.append(
                f"its tokenizer reads them letter by letter ({self.tokens_per_letter:.2f} tokens per letter; allowed: "
                f"{MOST_TOKENS_PER_LETTER})"
            )
        return found


def tokenizer_fit(tokenizer: Any, texts: Sequence[str]) -> TokenizerFit:
    """Measures how a tokenizer reads these texts; runs no model."""
    texts = list(dict.fromkeys(texts))
    ids = [tuple(row) for row in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
    flat = [token for row in ids for token in row]
    count, repeats = max(1, len(flat)), Counter(ids)
    letters = sum(len("".join(text.split())) for text in texts)
    names = tokenizer.convert_ids_to_tokens(flat)
    return TokenizerFit(
        unknown=flat.count(tokenizer.unk_token_id) / count,
        byte_fallback=sum(bool(BYTE_TOKEN.fullmatch(str(name))) for name in names) / count,
        alike=sum(repeats[row] > 1 for row in ids) / len(ids),
        tokens_per_letter=len(flat) / letters,
        spells=has_single_characters_only(tokenizer),
    )


def has_single_characters_only(tokenizer: Any) -> bool:
    added = set(tokenizer.all_special_tokens) | set(tokenizer.get_added_vocab())
    return all(len(name) == 1 for name in tokenizer.get_vocab() if name not in added)


def require_readable(tokenizer: Any, name: str, language: Language) -> None:
    """Raises if the tokenizer of a model cannot read the bundled sentences: no score on them would mean anything."""
    if problems := tokenizer_fit(tokenizer, proxy_texts(language)).problems:
        others = [
            one for one in LANGUAGES if one != language and not tokenizer_fit(tokenizer, proxy_texts(one)).problems
        ]
        also = f", or take bundled sentences that it can read: --language {' or '.join(others)}" if others else ""
        raise InputError(
            f"the bundled {LANGUAGES[language]} sentences cannot judge {name}: {' and '.join(problems)}. Pass pairs of "
            f"your own texts that belong together: --pairs FILE with the columns query,document{also}"
        )


@cache
def common_words(language: Language) -> frozenset[str]:
    """The most frequent words of the bundled sentences."""
    counts = Counter(word for text in proxy_texts(language) for word in words_in(text))
    return frozenset(word for word, _ in counts.most_common(COMMON_WORDS))


def warn_of_other_language(texts: Sequence[str], option: str, language: Language) -> None:
    """Warns if few of the common words of the bundled sentences are in these texts."""
    words = [word for text in texts[:MOST_TEXTS] for word in words_in(text)]
    shares = {one: sum(word in common_words(one) for word in words) / max(1, len(words)) for one in LANGUAGES}
    if len(words) < FEWEST_WORDS or shares[language] >= FEWEST_COMMON:
        return
    best = max(LANGUAGES, key=lambda one: shares[one])
    advice = f"; pass --language {best}" if shares[best] >= FEWEST_COMMON else "; pass pairs of yours (--pairs FILE)"
    warnings.warn(
        f"{option}: only {percent(shares[language])} of the words are among the {COMMON_WORDS} most common of the "
        f"bundled {LANGUAGES[language]} sentences, which may choose a bad recipe for these texts{advice}",
        stacklevel=5,
    )


def words_in(text: str) -> list[str]:
    return WORD.findall(text.lower())


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"

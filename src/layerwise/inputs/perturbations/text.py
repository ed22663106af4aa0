"""Views of a text: seeded copies with split words, character edits and keyboard typos, as in the paper.

Words of at least four letters are eligible. Each of the three steps changes a fraction p of all tokens (words and
punctuation marks), at least one and at most ten words; within a word, a fraction p of the letters, at least one.
"""

import math
import re
from collections.abc import Callable, Sequence
from random import Random
from string import ascii_letters, digits

from layerwise.inputs.perturbations.base import perturbed
from layerwise.options.views import STRENGTH

SHORTEST_WORD = 4
MOST = 10  # maximum number of words per text, and letters per word, that one step changes

WORD = re.compile(r"\w+")
MARK = re.compile(r"[^\w\s]")

# The letters and digits of a QWERTY keyboard; neighbours are at most one row and one column apart.
KEYBOARD = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
SHIFTED_DIGITS = dict(zip(KEYBOARD[0], "!@#$%^&*()", strict=True))
LETTERS = ascii_letters + digits + "!@#$%^&*()_+"

Edit = Callable[[str, Random, float], str]


def make_view(text: str, seed: int, example_id: str, number: int, strength: float = STRENGTH) -> str:
    """View `number` of a text. It depends only on these arguments, so every worker makes the same one."""
    return perturbed(text, perturb_text, strength, seed=seed, example_id=example_id, name=number)


def perturb_text(text: str, random: Random, strength: float) -> str:
    """Applies split words, then character edits, then keyboard typos."""
    for step in (split_words, edit_letters, mistype):
        text = step(text, random, strength)
    return text


def split_words(text: str, random: Random, p: float = STRENGTH) -> str:
    """Some words with a space inside."""
    return change_words(text, random, p, split_word)


def edit_letters(text: str, random: Random, p: float = STRENGTH, edits: Sequence[Edit] | None = None) -> str:
    """Some words with letters inserted, substituted, swapped or deleted: one kind of edit per word, at random."""
    kinds = edits or EDITS
    return change_words(text, random, p, lambda word, r, share: kinds[int(r.random() * len(kinds))](word, r, share))


def mistype(text: str, random: Random, p: float = STRENGTH) -> str:
    """Some words with letters replaced by neighbouring keys."""
    return change_words(text, random, p, mistype_word)


def change_words(text: str, random: Random, p: float, change: Edit) -> str:
    """Applies `change` to randomly chosen eligible words, as many as a fraction p of all tokens."""
    words = [found.span() for found in WORD.finditer(text)]
    eligible = [span for span in words if span[1] - span[0] >= SHORTEST_WORD]
    count = how_many(len(words) + len(MARK.findall(text)), p)
    chosen = sorted(random.sample(eligible, min(count, len(eligible))))
    parts, end = [], 0
    for start, stop in chosen:
        parts += [text[end:start], change(text[start:stop], random, p)]
        end = stop
    return "".join([*parts, text[end:]])


def how_many(size: int, p: float) -> int:
    """A fraction p of size, rounded up, at least one and at most ten."""
    return min(max(1, math.ceil(p * size)), MOST)


def split_word(word: str, random: Random, p: float) -> str:
    at = 1 + int(random.random() * (len(word) - 1))
    return f"{word[:at]} {word[at:]}"


def places(word: str, random: Random, p: float) -> list[int]:
    return random.sample(range(len(word)), min(how_many(len(word), p), len(word)))


def insert(word: str, random: Random, p: float) -> str:
    letters = list(word)
    for at in sorted(places(word, random, p), reverse=True):
        letters.insert(at, any_letter(random))
    return "".join(letters)


def substitute(word: str, random: Random, p: float) -> str:
    letters = list(word)
    for at in places(word, random, p):
        letters[at] = any_letter(random)
    return "".join(letters)


def swap(word: str, random: Random, p: float) -> str:
    """Swaps letters with a neighbour; capitalisation stays in place."""
    letters = list(word)
    for at in places(word, random, p):
        other = 1 if at == 0 else at - 1 if at == len(letters) - 1 or random.random() < 0.5 else at + 1
        one, two = letters[at], letters[other]
        letters[at] = two.upper() if one.isupper() else two.lower()
        letters[other] = one.upper() if two.isupper() else one.lower()
    return "".join(letters)


def delete(word: str, random: Random, p: float) -> str:
    gone = set(places(word, random, p))
    return "".join(letter for at, letter in enumerate(word) if at not in gone)


def mistype_word(word: str, random: Random, p: float) -> str:
    letters = list(word)
    reachable = [at for at, letter in enumerate(letters) if letter in NEIGHBOURS]
    for at in random.sample(reachable, min(how_many(len(word), p), len(reachable))):
        near = NEIGHBOURS[letters[at]]
        letters[at] = near[int(random.random() * len(near))]
    return "".join(letters)


def any_letter(random: Random) -> str:
    return LETTERS[int(random.random() * len(LETTERS))]


def keyboard_neighbours() -> dict[str, str]:
    """For each letter and digit, in both cases, the characters one key away, with and without the shift key."""
    at = {key: (row, column) for row, keys in enumerate(KEYBOARD) for column, key in enumerate(keys)}
    near: dict[str, str] = {}
    for key, (row, column) in at.items():
        keys = [k for k, (r, c) in at.items() if k != key and abs(r - row) <= 1 and abs(c - column) <= 1]
        reached = "".join(k + SHIFTED_DIGITS.get(k, k.upper()) for k in sorted(keys))
        near[key] = near[key.upper()] = reached
    return near


EDITS: tuple[Edit, ...] = (insert, substitute, swap, delete)
NEIGHBOURS = keyboard_neighbours()

"""Views of a text: seeded copies with split words, character edits and keyboard typos, as in the paper.

Words of at least four letters are eligible. Each of the three steps changes a fraction p of all tokens (words and
punctuation marks), at least one and at most ten words; within a word, a fraction p of the letters, at least one.
"""

import math
import re
from collections.abc import Callable, Sequence
from random import Random
from string import ascii_letters, digits

from layerwise.inputs.perturbations.base import DEFAULT_STRENGTH, perturb

MIN_WORD_LENGTH = 4
MAX_EDITS = 10  # maximum number of words per text, and letters per word, that one step changes

WORD = re.compile(r"\w+")
PUNCTUATION = re.compile(r"[^\w\s]")

# The letters and digits of a QWERTY keyboard; neighbours are at most one row and one column apart.
KEYBOARD = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")
SHIFTED_DIGITS = dict(zip(KEYBOARD[0], "!@#$%^&*()", strict=True))
LETTERS = ascii_letters + digits + "!@#$%^&*()_+"

Edit = Callable[[str, Random, float], str]


def make_view(text: str, seed: int, example_id: str, number: int, strength: float = DEFAULT_STRENGTH) -> str:
    """View `number` of a text. It depends only on these arguments, so every worker makes the same one."""
    return perturb(text, perturb_text, strength, seed=seed, example_id=example_id, name=number)


def perturb_text(text: str, random: Random, strength: float) -> str:
    """Applies split words, then character edits, then keyboard typos."""
    for step in (split_words, edit_letters, mistype):
        text = step(text, random, strength)
    return text


def split_words(text: str, random: Random, p: float = DEFAULT_STRENGTH) -> str:
    """Some words with a space inside."""
    return change_words(text, random, p, split_word)


def edit_letters(text: str, random: Random, p: float = DEFAULT_STRENGTH, edits: Sequence[Edit] | None = None) -> str:
    """Some words with letters inserted, substituted, swapped or deleted: one kind of edit per word, at random."""
    kinds = edits or EDITS
    return change_words(
        text, random, p, lambda word, r, fraction: kinds[int(r.random() * len(kinds))](word, r, fraction)
    )


def mistype(text: str, random: Random, p: float = DEFAULT_STRENGTH) -> str:
    """Some words with letters replaced by neighbouring keys."""
    return change_words(text, random, p, mistype_word)


def change_words(text: str, random: Random, p: float, change: Edit) -> str:
    """Applies `change` to randomly chosen eligible words, as many as a fraction p of all tokens."""
    words = [match.span() for match in WORD.finditer(text)]
    eligible = [span for span in words if span[1] - span[0] >= MIN_WORD_LENGTH]
    count = edit_count(len(words) + len(PUNCTUATION.findall(text)), p)
    chosen = sorted(random.sample(eligible, min(count, len(eligible))))
    parts, end = [], 0
    for start, stop in chosen:
        parts += [text[end:start], change(text[start:stop], random, p)]
        end = stop
    return "".join([*parts, text[end:]])


def edit_count(size: int, p: float) -> int:
    """A fraction p of size, rounded up, at least one and at most ten."""
    return min(max(1, math.ceil(p * size)), MAX_EDITS)


def split_word(word: str, random: Random, p: float) -> str:
    position = 1 + int(random.random() * (len(word) - 1))
    return f"{word[:position]} {word[position:]}"


def sample_positions(word: str, random: Random, p: float) -> list[int]:
    return random.sample(range(len(word)), min(edit_count(len(word), p), len(word)))


def insert(word: str, random: Random, p: float) -> str:
    letters = list(word)
    for position in sorted(sample_positions(word, random, p), reverse=True):
        letters.insert(position, random_letter(random))
    return "".join(letters)


def substitute(word: str, random: Random, p: float) -> str:
    letters = list(word)
    for position in sample_positions(word, random, p):
        letters[position] = random_letter(random)
    return "".join(letters)


def swap(word: str, random: Random, p: float) -> str:
    """Swaps letters with a neighbour; capitalisation stays in place."""
    letters = list(word)
    for position in sample_positions(word, random, p):
        other = (
            1
            if position == 0
            else position - 1
            if position == len(letters) - 1 or random.random() < 0.5
            else position + 1
        )
        letter, neighbour = letters[position], letters[other]
        letters[position] = neighbour.upper() if letter.isupper() else neighbour.lower()
        letters[other] = letter.upper() if neighbour.isupper() else letter.lower()
    return "".join(letters)


def delete(word: str, random: Random, p: float) -> str:
    deleted = set(sample_positions(word, random, p))
    return "".join(letter for position, letter in enumerate(word) if position not in deleted)


def mistype_word(word: str, random: Random, p: float) -> str:
    letters = list(word)
    typed_positions = [position for position, letter in enumerate(letters) if letter in NEIGHBOURS]
    for position in random.sample(typed_positions, min(edit_count(len(word), p), len(typed_positions))):
        neighbours = NEIGHBOURS[letters[position]]
        letters[position] = neighbours[int(random.random() * len(neighbours))]
    return "".join(letters)


def random_letter(random: Random) -> str:
    return LETTERS[int(random.random() * len(LETTERS))]


def keyboard_neighbours() -> dict[str, str]:
    """For each letter and digit, in both cases, the characters one key away, with and without the shift key."""
    positions = {key: (row, column) for row, keys in enumerate(KEYBOARD) for column, key in enumerate(keys)}
    neighbours: dict[str, str] = {}
    for key, (row, column) in positions.items():
        keys = [k for k, (r, c) in positions.items() if k != key and abs(r - row) <= 1 and abs(c - column) <= 1]
        characters = "".join(k + SHIFTED_DIGITS.get(k, k.upper()) for k in sorted(keys))
        neighbours[key] = neighbours[key.upper()] = characters
    return neighbours


EDITS: tuple[Edit, ...] = (insert, substitute, swap, delete)
NEIGHBOURS = keyboard_neighbours()

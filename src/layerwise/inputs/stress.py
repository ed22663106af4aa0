"""Stress inputs: prompts made extreme token by token, as in section 5 of the paper, seeded by example id."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from layerwise.core.checks import require_word
from layerwise.core.errors import InputError

Tokens = Sequence[int]


@dataclass(frozen=True)
class Vocabulary:
    """What random tokens are drawn from: ids below `size`, special ones left out, which also stay in their places."""

    size: int
    special: Collection[int]

    def draw(self, random: Random) -> int:
        while (token := random.randrange(self.size)) in self.special:
            pass
        return token


@dataclass(frozen=True)
class Stress:
    """One way to make prompts extreme (`kind`) and how far it goes (`level`: a share, or a length in tokens)."""

    kind: str
    level: float

    def __post_init__(self) -> None:
        require_word("kind", self.kind, KINDS)
        if KINDS[self.kind].a_share and not 0 <= self.level <= 1:
            raise InputError(f"{self.kind} goes by a share from 0 to 1, not {self.level}")
        if not KINDS[self.kind].a_share and (self.level < 2 or self.level != int(self.level)):
            raise InputError(f"{self.kind} goes by a length of at least 2 tokens, not {self.level}")

    def apply(self, ids: Tokens, vocabulary: Vocabulary, seed: int, example_id: str) -> tuple[int, ...]:
        """The prompt at this level. The same seed, id and kind touch nested sets of places as the level grows."""
        digest = hashlib.blake2b(f"{seed}\x1f{example_id}\x1f{self.kind}".encode(), digest_size=8).digest()
        return tuple(KINDS[self.kind].change(ids, self.level, vocabulary, Random(int.from_bytes(digest, "little"))))


def replaced(ids: Tokens, share: float, keep: Collection[int], random: Random, new: Callable[[], int]) -> list[int]:
    """Each token that is not special replaced with probability `share`.

    The coin and the new token of a place are drawn whether they are used or not, so that they are the same at
    every level.
    """
    drawn = [(token, random.random() < share, new()) for token in ids]
    return [other if hit and token not in keep else token for token, hit, other in drawn]


def repeat_one(ids: Tokens, share: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Places filled with one token, drawn once from the prompt."""
    token = random.choice([i for i in ids if i not in vocabulary.special] or list(ids))
    return replaced(ids, share, vocabulary.special, random, lambda: token)


def repeat_any(ids: Tokens, share: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Places filled with tokens of the prompt, drawn anew for each place."""
    own = [i for i in ids if i not in vocabulary.special] or list(ids)
    return replaced(ids, share, vocabulary.special, random, lambda: random.choice(own))


def random_tokens(ids: Tokens, share: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Places filled with tokens of the whole vocabulary."""
    return replaced(ids, share, vocabulary.special, random, lambda: vocabulary.draw(random))


def random_length(ids: Tokens, length: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Nothing but random tokens, as many as the level says; a special first token stays."""
    start = [ids[0]] if ids[0] in vocabulary.special else []
    return start + [vocabulary.draw(random) for _ in range(int(length) - len(start))]


def prefix(ids: Tokens, length: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """The first tokens of the prompt, as many as the level says."""
    return list(ids[: int(length)])


@dataclass(frozen=True)
class Kind:
    """How a kind of stress changes tokens, whether its level is a share, and the levels it is tried at."""

    change: Callable[[Tokens, float, Vocabulary, Random], list[int]]
    a_share: bool
    levels: tuple[float, ...]


SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)

KINDS = {
    "repeat_one": Kind(repeat_one, True, SHARES),
    "repeat_any": Kind(repeat_any, True, SHARES),
    "random": Kind(random_tokens, True, SHARES),
    "length": Kind(prefix, False, LENGTHS),
    "random_length": Kind(random_length, False, LENGTHS),
}

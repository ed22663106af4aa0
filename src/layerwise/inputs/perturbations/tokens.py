"""Stress made of tokens: prompts made extreme token by token, as in section 5 of the paper."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from layerwise.inputs.perturbations.base import Scale, perturbed

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Vocabulary:
    """What random tokens are drawn from: ids below `size`, special ones left out, which also stay in their places."""

    size: int
    special: Collection[int]

    def draw(self, random: Random) -> int:
        while (token := random.randrange(self.size)) in self.special:
            pass
        return token


def stressed(ids: Tokens, kind: str, level: float, vocabulary: Vocabulary, seed: int, example_id: str) -> Tokens:
    """The prompt at this level. The same seed, id and kind touch nested sets of places as the level grows."""

    def change(given: Tokens, random: Random, amount: float) -> Tokens:
        return tuple(TOKEN_STRESS[kind].change(given, amount, vocabulary, random))

    return perturbed(ids, change, level, seed=seed, example_id=example_id, name=kind)


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
class TokenStress:
    """How a kind of stress changes tokens, and its scale."""

    change: Callable[[Tokens, float, Vocabulary, Random], Sequence[int]]
    scale: Scale


SHARES = Scale("share", (0.0, 0.1, 0.25, 0.5, 0.75, 1.0))
LENGTHS = Scale("length", (16, 32, 64, 128, 256, 512, 1024))

TOKEN_STRESS = {
    "repeat_one": TokenStress(repeat_one, SHARES),
    "repeat_any": TokenStress(repeat_any, SHARES),
    "random": TokenStress(random_tokens, SHARES),
    "length": TokenStress(prefix, LENGTHS),
    "random_length": TokenStress(random_length, LENGTHS),
}

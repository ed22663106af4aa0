"""Token-level stress: extreme prompts, as in section 5 of the paper."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from layerwise.inputs.perturbations.base import Scale, perturb

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Vocabulary:
    """The source of random tokens: ids below `size` except special ones. Special tokens are never replaced."""

    size: int
    special: Collection[int]

    def draw(self, random: Random) -> int:
        while (token := random.randrange(self.size)) in self.special:
            pass
        return token


def apply_stress(ids: Tokens, kind: str, level: float, vocabulary: Vocabulary, seed: int, example_id: str) -> Tokens:
    """The prompt at this level. For the same seed, id and kind, the changed positions are nested as the level grows."""

    def change(tokens: Tokens, random: Random, amount: float) -> Tokens:
        return tuple(TOKEN_STRESS[kind].change(tokens, amount, vocabulary, random))

    return perturb(ids, change, level, seed=seed, example_id=example_id, name=kind)


def replace_tokens(
    ids: Tokens, fraction: float, protected: Collection[int], random: Random, new: Callable[[], int]
) -> list[int]:
    """Replaces each non-special token with probability `fraction`.

    Both random draws are made for every position, used or not, so that they are the same at every level.
    """
    draws = [(token, random.random() < fraction, new()) for token in ids]
    return [new_token if is_replaced and token not in protected else token for token, is_replaced, new_token in draws]


def repeat_one(ids: Tokens, fraction: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Replaces positions with one token, drawn once from the prompt."""
    token = random.choice([i for i in ids if i not in vocabulary.special] or list(ids))
    return replace_tokens(ids, fraction, vocabulary.special, random, lambda: token)


def repeat_any(ids: Tokens, fraction: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Replaces positions with tokens of the prompt, drawn separately for each position."""
    prompt_tokens = [i for i in ids if i not in vocabulary.special] or list(ids)
    return replace_tokens(ids, fraction, vocabulary.special, random, lambda: random.choice(prompt_tokens))


def random_tokens(ids: Tokens, fraction: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Replaces positions with tokens from the whole vocabulary."""
    return replace_tokens(ids, fraction, vocabulary.special, random, lambda: vocabulary.draw(random))


def random_length(ids: Tokens, length: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """Only random tokens, up to the length given by the level; a special first token stays."""
    kept_start = [ids[0]] if ids[0] in vocabulary.special else []
    return kept_start + [vocabulary.draw(random) for _ in range(int(length) - len(kept_start))]


def prefix(ids: Tokens, length: float, vocabulary: Vocabulary, random: Random) -> list[int]:
    """The first tokens of the prompt, up to the length given by the level."""
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

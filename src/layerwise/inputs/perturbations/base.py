"""Common to all perturbations: one signature, and randomness that depends only on seed and example id."""

import hashlib
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")
DEFAULT_STRENGTH = 0.3  # of the views in a scan


@dataclass(frozen=True)
class Scale:
    """The unit of a stress level, and its default levels."""

    unit: Literal["share", "length"]
    levels: tuple[float, ...]


class Perturbation(Protocol[T]):
    """A function that changes an input (text, tokens or image) by a given amount.

    It must draw only from `random`, so that every worker makes the same copy.
    """

    def __call__(self, value: T, random: Random, amount: float, /) -> T: ...


def perturb(value: T, change: Perturbation[T], amount: float, *, seed: int, example_id: str, name: object) -> T:
    """Applies a perturbation. `name` distinguishes changes of one example: a view number or a kind of stress."""
    identity = f"{seed}\x1f{example_id}\x1f{name}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(identity, digest_size=8).digest()
    return change(value, Random(int.from_bytes(digest, "little")), amount)

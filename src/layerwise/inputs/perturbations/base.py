"""What all perturbations share: one signature, and randomness that depends on seed and example id only."""

import hashlib
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """What the level of a kind of stress means, and the levels it is tried at."""

    of: Literal["share", "length"]
    levels: tuple[float, ...]


class Perturbation(Protocol[T]):
    """One way to change a thing (a text, a row of tokens, a picture), and by how much.

    Whatever it draws, it draws from `random`, so that every worker makes the same copy.
    """

    def __call__(self, given: T, random: Random, amount: float, /) -> T: ...


def perturbed(given: T, change: Perturbation[T], amount: float, *, seed: int, example_id: str, name: object) -> T:
    """The thing changed. `name` tells several changes of one example apart: a view's number, a kind of stress."""
    digest = hashlib.blake2b(f"{seed}\x1f{example_id}\x1f{name}".encode(), digest_size=8).digest()
    return change(given, Random(int.from_bytes(digest, "little")), amount)

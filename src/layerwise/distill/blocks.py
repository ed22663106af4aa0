"""Which blocks to keep: chosen by how well a linear map recovers the teacher's vectors on a few texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from layerwise.core.errors import InputError

MOST_TRIED = 40  # sets of blocks, of which each costs a pass of the student over the texts
Blocks = tuple[int, ...]  # counted from 0, ascending


@dataclass(frozen=True)
class BlockChoice:
    """The blocks to keep, how they were chosen, and the error of every set that was tried."""

    kept: Blocks
    how: str
    errors: dict[Blocks, float]  # share of the variance of the teacher's vectors that a map leaves


def prefix(depth: int, count: int) -> Blocks:
    """The first blocks."""
    return tuple(range(count))


def evenly_spaced(depth: int, count: int) -> Blocks:
    """Blocks at equal distances, with the first and the last one."""
    return tuple(round(i * (depth - 1) / (count - 1)) for i in range(count)) if count > 1 else (0,)


def candidates(depth: int, count: int) -> list[Blocks]:
    """The sets to start from: the first blocks, evenly spaced ones, and those without one run of blocks."""
    without_run = [tuple((*range(first), *range(depth - count + first, depth))) for first in range(count, 0, -1)]
    return list(dict.fromkeys([prefix(depth, count), evenly_spaced(depth, count), *without_run]))


def neighbours(kept: Blocks, depth: int) -> list[Blocks]:
    """The sets in which one block is replaced by the one before or after it."""
    moved = [{*kept} - {block} | {block + step} for block in kept for step in (1, -1)]
    return [tuple(sorted(blocks)) for blocks in moved if len(blocks) == len(kept) and {*blocks} <= {*range(depth)}]


def search_blocks(
    depth: int, count: int, error_of: Callable[[Blocks], float], on_tried: Callable[[Blocks, float], None]
) -> BlockChoice:
    """The set with the lowest error that a local search finds, within MOST_TRIED sets."""
    errors: dict[Blocks, float] = {}

    def try_sets(sets: Sequence[Blocks]) -> None:
        for blocks in sets:
            if blocks not in errors and len(errors) < MOST_TRIED:
                errors[blocks] = error_of(blocks)
                on_tried(blocks, errors[blocks])

    try_sets(candidates(depth, count))
    best = min(errors, key=errors.__getitem__)
    while len(errors) < MOST_TRIED:
        tried = len(errors)
        try_sets(neighbours(best, depth))
        better = min(errors, key=errors.__getitem__)
        if better == best and len(errors) == tried:
            break
        best = better
    return BlockChoice(min(errors, key=errors.__getitem__), "measured", errors)


def named_blocks(words: str, depth: int, count: int | None) -> Blocks:
    """The blocks that `prefix`, `even` or numbers counted from 1, such as `1,2,6`, name; raises if it is none."""
    if words in ("prefix", "even"):
        assert count is not None
        return {"prefix": prefix, "even": evenly_spaced}[words](depth, count)
    try:
        kept = tuple(sorted(int(word) - 1 for word in words.split(",")))
    except ValueError:
        raise InputError(f"choose {words!r} is not measured, prefix, even or numbers such as 1,2,{depth}") from None
    if len({*kept}) < len(kept) or not {*kept} < {*range(depth)}:
        raise InputError(f"choose {words!r}: name some, not all, of the blocks 1 to {depth}, each once")
    if count is not None and count != len(kept):
        raise InputError(f"choose names {len(kept)} blocks, and blocks asks for {count}; leave one of them out")
    return kept

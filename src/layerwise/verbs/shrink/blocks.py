"""Which blocks to keep: chosen by how well a linear map recovers the teacher's vectors on a few texts."""

from collections.abc import Callable
from dataclasses import dataclass

from layerwise.core.errors import InputError

MOST_TRIED = 24  # sets of blocks, of which each costs a pass of the student over the texts
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
    """The sets in which one block is replaced by another one, the nearest replacements first."""
    left_out = [block for block in range(depth) if block not in kept]
    swaps = sorted(((abs(new - old), old, new) for old in kept for new in left_out), key=lambda swap: swap[0])
    return [tuple(sorted({*kept} - {old} | {new})) for _, old, new in swaps]


def search_blocks(
    depth: int, count: int, error_of: Callable[[Blocks], float], on_tried: Callable[[Blocks, float], None]
) -> BlockChoice:
    """The set with the lowest error that a local search finds, within MOST_TRIED sets.

    It starts from the best candidate and replaces one block at a time, as long as that lowers the error.
    """
    errors: dict[Blocks, float] = {}
    best: Blocks = ()

    def improves(blocks: Blocks) -> bool:
        if blocks in errors or len(errors) >= MOST_TRIED:
            return False
        errors[blocks] = error_of(blocks)
        on_tried(blocks, errors[blocks])
        return not best or errors[blocks] < errors[best]

    for blocks in candidates(depth, count):
        best = blocks if improves(blocks) else best
    while (better := next(filter(improves, neighbours(best, depth)), None)) is not None:
        best = better
    return BlockChoice(best, "measured", errors)


def named_blocks(words: str, depth: int, count: int | None) -> Blocks:
    """The blocks that `prefix`, `even` or numbers counted from 1, such as `1,2,6` or `1-2,6`, name; raises if none."""
    if words in ("prefix", "even"):
        assert count is not None
        return {"prefix": prefix, "even": evenly_spaced}[words](depth, count)
    try:
        kept = tuple(sorted(block for word in words.split(",") for block in block_range(word)))
    except ValueError:
        raise InputError(f"choose {words!r} is not measured, prefix, even or numbers such as 1,2,{depth}") from None
    if len({*kept}) < len(kept) or not {*kept} < {*range(depth)}:
        raise InputError(f"choose {words!r}: name some, not all, of the blocks 1 to {depth}, each once")
    if count is not None and count != len(kept):
        raise InputError(f"choose names {len(kept)} blocks, and blocks asks for {count}; leave one of them out")
    return kept


def block_range(word: str) -> range:
    """The blocks, counted from 0, that a number or a range such as `9-12` names; raises ValueError if it is neither."""
    ends = [int(number) for number in word.split("-")]
    if len(ends) > 2 or ends[0] > ends[-1]:
        raise ValueError(word)
    return range(ends[0] - 1, ends[-1])

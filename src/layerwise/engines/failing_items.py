"""Items that cannot be computed: found by halving their shard, and left out if allowed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import InputError, LayerwiseError
from layerwise.engines.shards import ItemT, ProgressCallback, ShardFunction, ShardResult, StateT


@dataclass(frozen=True)
class Failure:
    """Why a shard failed. After an unexpected error, its process is no longer trusted."""

    why: str
    expected: bool = False


def attempt(
    work: ShardFunction[StateT], model: Any, number: int, items: Sequence[ItemT], report: ProgressCallback
) -> ShardResult[StateT] | Failure:
    """The result for these items, or the failure; an error must not affect other items."""
    try:
        return work(model, number, items, report)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", isinstance(error, LayerwiseError))


def find_failing_items(
    items: Sequence[ItemT],
    failure_reason: Callable[[Sequence[ItemT]], str | None],
    missing_so_far: int,
    allow_missing: int,
) -> list[ItemT]:
    """The items that fail on their own, found by halving; raises if there are too many.

    `failure_reason` runs some items and returns the reason if they fail, or None.
    """
    failing: list[tuple[ItemT, str]] = []
    parts = split_in_half(items)
    while parts and missing_so_far + len(failing) <= allow_missing:
        part = parts.pop()
        if (reason := failure_reason(part)) is None:
            continue
        if len(part) == 1:
            failing.append((part[0], reason))
        else:
            parts += split_in_half(part)
    if missing_so_far + len(failing) > allow_missing:
        details = "; ".join(f"example {item.id} cannot be computed: {reason}" for item, reason in failing)
        raise InputError(
            f"{details}. Take it out of the data, or pass --allow-missing {missing_so_far + len(failing)} or more: "
            "such examples are then left out and counted in every row"
        )
    if not failing and (reason := failure_reason(items)) is not None:
        raise InputError(
            f"examples {items[0].id} to {items[-1].id} fail together, though each can be computed alone: {reason}. "
            "Try a smaller --batch-tokens"
        )
    return [item for item, _ in failing]


def split_in_half(items: Sequence[ItemT]) -> list[Sequence[ItemT]]:
    """The second half, then the first, so that the first is popped first."""
    middle = len(items) // 2
    return [part for part in (items[middle:], items[:middle]) if part]


def exclude_items(items: Sequence[ItemT], excluded: Sequence[ItemT]) -> list[ItemT]:
    """The other items, in order."""
    excluded_ids = {item.id for item in excluded}
    return [item for item in items if item.id not in excluded_ids]

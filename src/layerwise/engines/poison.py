"""Items that cannot be computed: found by halving their shard, and left out if allowed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.core.errors import InputError, LayerwiseError
from layerwise.engines.shards import ItemT, Product, Report, StateT, Work


@dataclass(frozen=True)
class Trouble:
    """Why a shard failed. After an unexpected error, its process is no longer trusted."""

    why: str
    foreseen: bool = False


def attempt(
    work: Work[StateT], tool: Any, number: int, items: Sequence[ItemT], report: Report
) -> Product[StateT] | Trouble:
    """The result for these items, or the failure; an error must not affect other items."""
    try:
        return work(tool, number, items, report)
    except Exception as error:
        return Trouble(f"{type(error).__name__}: {error}", isinstance(error, LayerwiseError))


def find_poison(
    items: Sequence[ItemT], trouble: Callable[[Sequence[ItemT]], str | None], already: int, allow_missing: int
) -> list[ItemT]:
    """The items that fail on their own, found by halving; raises if there are too many.

    `trouble` runs some items and returns the reason if they fail, or None.
    """
    failing: list[tuple[ItemT, str]] = []
    parts = halves(items)
    while parts and already + len(failing) <= allow_missing:
        part = parts.pop()
        if (reason := trouble(part)) is None:
            continue
        if len(part) == 1:
            failing.append((part[0], reason))
        else:
            parts += halves(part)
    if already + len(failing) > allow_missing:
        details = "; ".join(f"example {item.id} cannot be computed: {reason}" for item, reason in failing)
        raise InputError(
            f"{details}. Take it out of the data, or pass --allow-missing {already + len(failing)} or more: such "
            "examples are then left out and counted in every row"
        )
    if not failing and (reason := trouble(items)) is not None:
        raise InputError(
            f"examples {items[0].id} to {items[-1].id} fail together, though each can be computed alone: {reason}. "
            "Try a smaller --batch-tokens"
        )
    return [item for item, _ in failing]


def halves(items: Sequence[ItemT]) -> list[Sequence[ItemT]]:
    """The second half, then the first, so that the first is popped first."""
    middle = len(items) // 2
    return [part for part in (items[middle:], items[:middle]) if part]


def without(items: Sequence[ItemT], poison: Sequence[ItemT]) -> list[ItemT]:
    """The other items, in order."""
    excluded_ids = {item.id for item in poison}
    return [item for item in items if item.id not in excluded_ids]

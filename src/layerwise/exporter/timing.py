"""Timing: how long several functions take relative to one of them, in rounds in which each is called in turn."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")


def relative_times(
    runs: Mapping[KeyT, Callable[[], object]],
    baseline: KeyT,
    repeats: int = 5,
    on_run: Callable[[], object] = lambda: None,
) -> dict[KeyT, float]:
    """Each function's time over that of `baseline`: the median of the ratios within each round, which noise moves less.

    `on_run` is called after each of the `rounds_of(repeats) * len(runs)` calls.
    """
    rounds = []
    for _ in range(rounds_of(repeats)):
        seconds = {}
        for key, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[key] = time.perf_counter() - start
            on_run()
        rounds.append(seconds)
    return {
        key: round(statistics.median(seconds[key] / seconds[baseline] for seconds in rounds[1:]), 3) for key in runs
    }


def rounds_of(repeats: int) -> int:
    """How many rounds are run: one more than is counted, which warms up."""
    return repeats + 1

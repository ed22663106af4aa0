"""Timing: how long several things take against one of them, in rounds in which each is done in turn."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")


def relative_times(runs: Mapping[KeyT, Callable[[], object]], base: KeyT, repeats: int = 5) -> dict[KeyT, float]:
    """Each run's time over that of `base`: the median of ratios taken within a round, which noise moves less."""
    rounds = []
    for _ in range(repeats + 1):  # the first warms up
        took = {}
        for key, run in runs.items():
            start = time.perf_counter()
            run()
            took[key] = time.perf_counter() - start
        rounds.append(took)
    return {key: round(statistics.median(took[key] / took[base] for took in rounds[1:]), 3) for key in runs}

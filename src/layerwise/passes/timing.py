"""Timing: how long functions take relative to one of them, in rounds in which each has its turn.

On a CPU it is the CPU time of this process with all its threads, which other processes hardly change. It includes the
kernel, which hands out memory: how often a call asks for it depends on what the process did before, so that a ratio may
differ by a tenth from one process to the next. An accelerator works on its own, so there it is the time by the clock
until it has finished.
"""

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

import torch

CALL_SECONDS = 0.02  # a shorter call is repeated until one measurement takes so long
MOST_CALLS = 2000  # a clock may be too coarse to see a short one
FEWEST_ROUNDS, MOST_ROUNDS = 3, 11
SECONDS = 4.0  # after which no further round is started
UNSTEADY = 0.2  # a time is marked if the middle half of its rounds spreads over more than this share of it
KeyT = TypeVar("KeyT", bound=Hashable)
Measure = Callable[[], Mapping[KeyT, float]]  # runs something and returns the seconds of one or several keys


@dataclass(frozen=True)
class RelativeTime:
    """A time as a share of another one: the median over rounds, and the range of their middle half."""

    ratio: float
    low: float
    high: float

    @property
    def unsteady(self) -> bool:
        """True if the rounds disagree."""
        return self.high - self.low > UNSTEADY * self.ratio

    def to_record(self, tokens: int | None) -> dict[str, Any]:
        """The time as a JSON object; `tokens` is the length of the timed texts, None for images."""
        return {"tokens": tokens, **asdict(self), "unsteady": self.unsteady}


def clock_of(device: torch.device) -> Callable[[], float]:
    """The seconds to measure work on that device by."""
    return time.process_time if device.type == "cpu" else partial(synchronised_time, device)


def synchronised_time(device: torch.device) -> float:
    """The time by the clock after the device has done what it was given: it works while Python goes on."""
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def measured(key: KeyT, run: Callable[[], object], clock: Callable[[], float]) -> Measure[KeyT]:
    """The function as something to measure: the seconds of one call."""

    def measure() -> dict[KeyT, float]:
        began = clock()
        run()
        return {key: clock() - began}

    return measure


def relative_times(
    measures: Sequence[Measure[KeyT]],
    baseline: KeyT,
    repeats: int | None = None,
    on_run: Callable[[], object] = lambda: None,
) -> dict[KeyT, RelativeTime]:
    """Each key's seconds over those of `baseline`, as ratios within each round.

    `repeats` is the number of rounds; None takes as many as fit into a few seconds. A first round warms up and is not
    counted. Every other round runs backwards, so that a machine that gets slower favours nobody. `on_run` is called
    after each of the `rounds_of(repeats) * len(measures)` measurements.
    """
    calls: list[int] = []
    rounds: list[dict[KeyT, float]] = []
    for measure in measures:
        took = max(measure().values())
        if took < CALL_SECONDS:
            took = max(measure().values())  # the first call of a process is slower
        calls.append(min(MOST_CALLS, max(1, math.ceil(CALL_SECONDS / max(1e-9, took)))))
        on_run()
    turns, began = list(zip(measures, calls, strict=True)), time.perf_counter()
    while is_to_go_on(len(rounds), repeats, time.perf_counter() - began):
        seconds: dict[KeyT, float] = {}
        for measure, count in turns if len(rounds) % 2 == 0 else reversed(turns):
            for _ in range(count):
                for key, took in measure().items():
                    seconds[key] = seconds.get(key, 0.0) + took / count
            on_run()
        rounds.append(seconds)
    return {key: summary([found[key] / max(1e-9, found[baseline]) for found in rounds]) for key in rounds[0]}


def is_to_go_on(done: int, repeats: int | None, seconds: float) -> bool:
    """True if another round is to be run after so many, which have taken so long."""
    if repeats is not None:
        return done < repeats
    return done < FEWEST_ROUNDS or (done < MOST_ROUNDS and seconds < SECONDS)


def rounds_of(repeats: int) -> int:
    """How many rounds are run: one more than is counted, which warms up."""
    return repeats + 1


def summary(ratios: Sequence[float]) -> RelativeTime:
    several = ratios if len(ratios) > 1 else [*ratios, *ratios]
    low, middle, high = statistics.quantiles(several, n=4, method="inclusive")
    return RelativeTime(round(middle, 4), round(low, 4), round(high, 4))

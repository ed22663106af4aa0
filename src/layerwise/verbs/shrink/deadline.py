"""The deadline of a training that is to take so many minutes, whatever else the machine does."""

import time
from datetime import datetime, timedelta
from typing import Any

from transformers import TrainerCallback

WARMUP_SHARE = 0.1
FEWEST_EVALUATIONS, MOST_EVALUATIONS = 3, 12  # during the training, each with a checkpoint
EVALUATED_SHARE = 0.1  # of the time of the steps, at most, unless those are very few


class Deadline(TrainerCallback):
    """Ends a training after so many seconds, evaluations and checkpoints included, however fast its steps are.

    The learning rate follows the time that has passed instead of the steps. The trainer's history, which is part of
    every checkpoint, holds that time, so that a resumed training has what is left of it.
    """

    def __init__(self, seconds: float, began: float, spent: float, evaluation: float) -> None:
        """`spent` seconds were used before a stop; an evaluation took `evaluation` seconds."""
        self.seconds, self.began = seconds, began - spent
        self.evaluation = evaluation  # the last one, with its checkpoint
        self.evaluated = spent  # when the last one was
        self.paused: float | None = None  # since when steps wait for an evaluation

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def rate(self) -> float:
        """The share of the highest learning rate: it rises during the first tenth, then falls to 0."""
        done = self.elapsed / (self.seconds - self.evaluation) if self.seconds > self.evaluation else 1.0
        return max(0.0, min(done / WARMUP_SHARE, (1 - done) / (1 - WARMUP_SHARE)))

    def interval(self) -> float:
        """The seconds between two evaluations, which take about a tenth of the time as long as there are three."""
        wanted = max(self.evaluation / EVALUATED_SHARE, self.seconds / MOST_EVALUATIONS)
        return min(wanted, self.seconds / FEWEST_EVALUATIONS)

    def resume(self) -> None:
        """Notes how long the evaluation took, if there was one."""
        if self.paused is not None:
            self.evaluation, self.evaluated, self.paused = self.elapsed - self.paused, self.elapsed, None

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.resume()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        at_end = self.elapsed + self.evaluation >= self.seconds
        if at_end or self.elapsed + self.evaluation - self.evaluated >= self.interval():
            control.should_evaluate = control.should_save = True
            self.paused = self.elapsed
        control.should_training_stop = control.should_training_stop or at_end

    def on_evaluate(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        state.log_history[-1]["elapsed"] = self.elapsed

    def steps_in_all(self, done: int) -> int:
        """How many steps there will be, if they go on as they have."""
        return done + round(done * max(0.0, self.seconds - self.elapsed) / max(1e-9, self.elapsed))


def clock_time(seconds: float) -> str:
    """The time of day in so many seconds."""
    return (datetime.now() + timedelta(seconds=max(0.0, seconds))).strftime("%H:%M:%S")

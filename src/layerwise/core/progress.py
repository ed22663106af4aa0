"""Progress: bars and single lines on standard error, for whoever waits at a terminal or in a notebook."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol

from layerwise.core.display import printable, redact

GO_ON = "run the same command again to go on"  # the note of an interrupt after which something was kept
FIRST_LINE, LAST_INTERVAL = 30.0, 600.0  # seconds between lines in a log file: doubled from line to line
_announcing: ContextVar[bool] = ContextVar("announcing", default=False)


class OnBatch(Protocol):
    """Called as work is done, with the number of further items and of their tokens (0: not counted)."""

    def __call__(self, items: int, tokens: int = 0, /) -> None: ...


@contextmanager
def announcements(shown: bool) -> Iterator[None]:
    """Inside, `announce` prints or not. The command line switches it on, and so does `progress=True` in the library."""
    before = _announcing.set(shown)
    try:
        yield
    finally:
        _announcing.reset(before)


def is_announcing() -> bool:
    return _announcing.get()


def announce(message: str) -> None:
    """Prints one line on standard error before something slow, such as loading a model; silent unless switched on."""
    if is_announcing():
        print(printable(redact(message)), file=sys.stderr, flush=True)


def in_notebook() -> bool:
    """True in a Jupyter kernel, whose standard error is shown although it is not a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def bar_class() -> Any:
    """tqdm's widget in a notebook that has ipywidgets, else its plain text bar, which needs nothing and never warns."""
    if in_notebook() and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm
    else:
        from tqdm.std import tqdm
    return tqdm


@dataclass
class ProgressLines:
    """What a log file shows instead of a bar: how much is done and how long the rest takes, in rare lines."""

    total: int
    unit: str
    interval: float = FIRST_LINE  # seconds to the next line
    done: int = 0
    announced: int = 0  # how many were done at the last line
    since: float = field(default_factory=lambda: time.monotonic())  # the time of the last line

    def add(self, items: int) -> None:
        """Counts further items, and announces them if a line is due."""
        self.done += items
        now = time.monotonic()
        if now - self.since < self.interval or not self.announced < self.done < self.total:
            return
        left = (now - self.since) / (self.done - self.announced) * (self.total - self.done)
        announce(f"  {self.done:,} of {self.total:,} {self.unit}, about {in_words(left)} left")
        self.announced, self.since, self.interval = self.done, now, min(2 * self.interval, LAST_INTERVAL)


def in_words(seconds: float) -> str:
    """A duration as people say it: 2.5 hours."""
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 10 else f"{seconds:.1f} seconds"


@contextmanager
def progress_bar(enabled: bool, total: int | None = None, unit: str = "texts") -> Iterator[OnBatch]:
    """A bar with the share done and the time left; without a total, the count and the rate.

    Args:
        enabled: False for no bar. With True there is one in a terminal or a notebook. A log file gets a line after half
            a minute, then less and less often.
        total: how many items there are; None where that is not known before, as in a stream.
        unit: what is counted.

    Yields:
        A function to call as work is done, with the number of further items and of their tokens.
    """
    disable = not enabled or (False if in_notebook() else None)  # None: tqdm looks whether it is a terminal
    with bar_class()(total=total, unit=f" {unit}", disable=disable) as bar:
        all_tokens = 0
        lines = ProgressLines(total, unit) if enabled and bar.disable and total else None

        def on_batch(items: int, tokens: int = 0, /) -> None:
            nonlocal all_tokens
            all_tokens += tokens
            if lines is not None:
                lines.add(items)
            if tokens:
                rate = all_tokens / max(1e-9, bar.format_dict["elapsed"])
                bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
            bar.update(items)

        yield on_batch

"""Progress: a bar on standard error, silent where nobody watches, and a line before each slow step."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

from layerwise.core.display import printable, redacted


@contextmanager
def progress_bar(shown: bool, total: int | None = None, unit: str = "prompts") -> Iterator[Any]:
    """A bar on standard error that counts units and tokens; silent where nobody watches.

    With a total, it also shows how long the rest is going to take.
    """
    with tqdm(unit=f" {unit}", total=total, disable=None if shown else True) as bar:
        all_tokens = 0

        def on_batch(units: int, tokens: int) -> None:
            nonlocal all_tokens
            all_tokens += tokens
            bar.update(units)
            if all_tokens:
                speed = all_tokens / max(1e-9, bar.format_dict["elapsed"])
                bar.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)

        yield on_batch


def announcer(shown: bool) -> Callable[[str], None]:
    """A function that prints a line on standard error before a slow step, or does nothing."""

    def announce(line: str) -> None:
        if shown:
            print(printable(redacted(line)), file=sys.stderr, flush=True)

    return announce

"""Progress: a bar on standard error, silent where standard error is not a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm


@contextmanager
def progress_bar(shown: bool, total: int | None = None, unit: str = "prompts") -> Iterator[Any]:
    """A bar on standard error that counts prompts and tokens; with `total`, it also shows the remaining time."""
    with tqdm(total=total, unit=f" {unit}", disable=None if shown else True) as bar:
        seen = 0

        def on_batch(prompts: int, tokens: int = 0) -> None:
            nonlocal seen
            seen += tokens
            bar.update(prompts)
            if tokens:
                bar.set_postfix_str(f"{seen / max(1e-9, bar.format_dict['elapsed']):,.0f} tokens/s", refresh=False)

        yield on_batch

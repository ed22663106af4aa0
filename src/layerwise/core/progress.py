"""Progress: a bar on standard error, silent where nobody watches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm


@contextmanager
def progress_bar(shown: bool) -> Iterator[Any]:
    """A bar on standard error that counts prompts and tokens; silent where nobody watches."""
    with tqdm(unit=" prompts", disable=None if shown else True) as bar:
        total = 0

        def on_batch(prompts: int, tokens: int) -> None:
            nonlocal total
            total += tokens
            bar.update(prompts)
            bar.set_postfix_str(f"{total / max(1e-9, bar.format_dict['elapsed']):,.0f} tokens/s", refresh=False)

        yield on_batch

"""compare: what differs between runs."""

from pathlib import Path
from typing import Any

from layerwise.api.report import write_page
from layerwise.core.checks import ROW_TREATMENTS, TOKEN_CHOICES, require_word
from layerwise.core.outputs import require_new_file
from layerwise.reporter.page import is_page, page
from layerwise.runs.folder import Run
from layerwise.sweep.comparison import Against, Comparison, compare_runs


def compare(
    *runs: Any,
    against: Against = "first",
    rows: str | None = None,
    tokens: str | None = None,
    html: str | Path | None = None,
    overwrite: bool = False,
) -> Comparison:
    """What differs between runs, layer by layer: base and fine-tune, sizes, checkpoints, architectures.

    Each run is held against the first, or the `previous` one. Differences are paired over prompts where the folders
    keep their numbers; CKA is of the pooled rows that they keep. With `html`, all of it is also a page; an earlier
    page of layerwise is replaced, any other file only with `overwrite`.
    """
    if html is not None:
        require_new_file(html, overwrite=overwrite, ours=is_page)
    for name, word, known in (("rows", rows, ROW_TREATMENTS), ("tokens", tokens, TOKEN_CHOICES)):
        if word is not None:
            require_word(name, word, known)
    opened = [Run.open(run) for run in runs]
    compared = compare_runs(opened, against=against, rows=rows, tokens=tokens)
    if html is not None:
        folders = [run.name or "RUN" for run in opened]
        words = ["layerwise", "compare", *folders, "--against", against, "--html", str(html)]
        write_page(html, page(opened, compared=compared.to_dict(), told=str(compared), made_by=words))
    return compared

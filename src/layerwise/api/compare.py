"""compare: what differs between runs."""

from pathlib import Path
from typing import Any

from layerwise.api.report import write_page
from layerwise.core.checks import RowTreatment, TokenChoice
from layerwise.core.outputs import require_new_file
from layerwise.options.compare import Against, CompareOptions
from layerwise.options.record import flag_words, plain_options
from layerwise.reporter.page import is_page, page
from layerwise.runs.folder import Run
from layerwise.sweep.comparison import Comparison, compare_runs


def compare(
    *runs: Any,
    against: Against = "first",
    rows: RowTreatment | None = None,
    tokens: TokenChoice | None = None,
    html: str | Path | None = None,
    overwrite: bool = False,
) -> Comparison:
    """What differs between runs, layer by layer: base and fine-tune, sizes, checkpoints, architectures.

    Each run is held against the first, or the `previous` one. Differences are paired over prompts where the folders
    keep their numbers; CKA is of the pooled rows that they keep. With `html`, all of it is also a page; an earlier
    page of layerwise is replaced, any other file only with `overwrite`.
    """
    options = CompareOptions(against=against, rows=rows, tokens=tokens, html=html, overwrite=overwrite)
    if html is not None:
        require_new_file(html, overwrite=overwrite, ours=is_page)
    opened = [Run.open(run) for run in runs]
    compared = compare_runs(opened, against=against, rows=rows, tokens=tokens)
    if html is not None:
        folders = [run.name or "RUN" for run in opened]
        words = ["layerwise", "compare", *folders, *flag_words(CompareOptions, plain_options(options))]
        write_page(html, page(opened, compared=compared.to_dict(), told=str(compared), made_by=words))
    return compared

"""compare: differences between runs."""

from pathlib import Path

from layerwise.core.checks import RowTreatment, TokenChoice
from layerwise.core.display import operand
from layerwise.core.option_records import flag_arguments, options_record
from layerwise.core.outputs import require_new_file
from layerwise.runs.folder import Run
from layerwise.runs.table import LayerTable
from layerwise.verbs.compare.comparison import Comparison, compare_runs
from layerwise.verbs.compare.options import Against, CompareOptions
from layerwise.verbs.report.api import write_page
from layerwise.verbs.report.page import is_page, page
from layerwise.verbs.report.provenance import NO_PLACE


def compare(
    *runs: Run | LayerTable | str | Path,
    against: Against = "first",
    rows: RowTreatment | None = None,
    tokens: TokenChoice | None = None,
    html: str | Path | None = None,
    overwrite: bool = False,
) -> Comparison:
    """Shows what differs between runs, layer by layer: base and fine-tune, sizes, checkpoints, architectures.

    Layers are compared at the same relative depth. Differences are paired by text if the run folders keep values per
    text; CKA is computed from the pooled vectors that the folders keep.

    Args:
        runs: Two or more run folders, urls or LayerTables, each of one model.
        against: `first` compares each run with the first, `previous` with the one before it.
        rows: Compare only this row treatment. By default all that the runs share.
        tokens: Compare only this token choice. By default all that the runs share.
        html: Also write a page with curves, heat maps and CKA to this file.
        overwrite: Replace `html` even if layerwise did not write it. A page of layerwise is always replaced.

    Returns:
        A Comparison. `print` shows a summary; `pairs[0].changes` is a data frame of all differences.

    Raises:
        InputError: Fewer than two runs are given, they share no metric, or one holds several models.
        RunError: A run is missing or damaged.

    Example:
        >>> base, tuned = (layerwise.scan(m, texts, metrics="curvature") for m in (model, encoder))
        >>> compared = layerwise.compare(base, tuned)
        >>> sorted(set(compared.pairs[0].changes.metric))
        ['curvature']
    """
    options = CompareOptions(against=against, rows=rows, tokens=tokens, html=html, overwrite=overwrite)
    if html is not None:
        require_new_file(html, overwrite=overwrite, is_ours=is_page)
    opened = [Run.open(run) for run in runs]
    comparison = compare_runs(opened, against=against, rows=rows, tokens=tokens)
    if html is not None:
        folders = [operand(run.name or NO_PLACE) for run in opened]
        command = [
            "layerwise",
            "compare",
            *map(operand, folders),
            *flag_arguments(CompareOptions, options_record(options)),
        ]
        text = page(opened, comparison=comparison.to_dict(), comparison_text=str(comparison), command_line=command)
        write_page(html, text)
    return comparison

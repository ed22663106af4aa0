"""compare: differences between runs."""

from layerwise.core.display import operand
from layerwise.core.option_records import flag_arguments, options_record
from layerwise.core.options import takes
from layerwise.core.outputs import require_new_file
from layerwise.runs.folder import Run, run_list
from layerwise.verbs.compare.comparison import Comparison, compare_runs
from layerwise.verbs.compare.options import CompareOptions
from layerwise.verbs.report.api import write_page
from layerwise.verbs.report.page import is_page, page
from layerwise.verbs.report.repeat_commands import NO_PLACE


@takes(CompareOptions)
def compare(options: CompareOptions) -> Comparison:
    """Shows what differs between runs, layer by layer: base and fine-tune, sizes, checkpoints, architectures.

    Layers are compared at the same relative depth. Differences are paired by text if the run folders keep values per
    text; CKA is computed from the pooled vectors that the folders keep.

    Returns:
        A Comparison. `print` shows a summary; `pairs[0].changes` is a data frame of all differences.

    Raises:
        InputError: Fewer than two runs are given, they share no metric, or one holds several models.
        RunError: A run is missing or damaged.

    Example:
        >>> base, tuned = (layerwise.scan(m, texts, metrics="curvature") for m in (model, encoder))
        >>> compared = layerwise.compare([base, tuned])
        >>> sorted(set(compared.pairs[0].changes.metric))
        ['curvature']
    """
    if options.html is not None:
        require_new_file(options.html, overwrite=options.overwrite, is_ours=is_page)
    opened = [Run.open(run) for run in run_list(options.runs)]
    comparison = compare_runs(opened, against=options.against, rows=options.rows, tokens=options.tokens)
    if options.html is not None:
        folders = [operand(run.name or NO_PLACE) for run in opened]
        command = [
            "layerwise",
            "compare",
            *map(operand, folders),
            *flag_arguments(CompareOptions, options_record(options)),
        ]
        text = page(opened, comparison=comparison.to_dict(), comparison_text=str(comparison), command_line=command)
        write_page(options.html, text)
    return comparison

"""report: show runs in one HTML file."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from layerwise.core.display import operand, redact_value
from layerwise.core.errors import InputError
from layerwise.core.files import write_atomically
from layerwise.core.option_records import flag_arguments, options_record
from layerwise.core.options import takes
from layerwise.core.outputs import require_new_file
from layerwise.runs.folder import Run, run_list, saved_ways
from layerwise.runs.identity import same_model
from layerwise.runs.quantiles import runs_by_model
from layerwise.runs.table import LayerTable, parse_conditions
from layerwise.verbs.report.correlations import correlations
from layerwise.verbs.report.options import ReportOptions
from layerwise.verbs.report.page import is_page, page
from layerwise.verbs.report.repeat_commands import NO_PLACE


@takes(ReportOptions)
def report(options: ReportOptions) -> Path:
    """Writes one HTML file that shows runs of `scan`, `stress` and `eval`, of one model or several. It works offline.

    It also shows what `shrink` found where it compared ways to make a model smaller.

    If a scan and an eval are of the same model, the page shows how metrics and scores correlate. It also shows what
    `pick` and `tradeoff` saved in a run folder, and the commands that make everything again. If a table has more than
    100 models, it shows quantiles over them.

    Returns:
        The path of the file.

    Raises:
        InputError: No run is given, or `html` exists and is not a page of layerwise.
        RunError: A run is missing or damaged.

    Example:
        >>> table = layerwise.scan(model, texts, metrics="curvature")
        >>> page = layerwise.report(table, html=folder / "report.html", title="My model")
        >>> "My model" in page.read_text()
        True
    """
    given = run_list(options.runs)
    if not given:
        raise InputError("no run given; pass folders written by scan, stress, eval or shrink")
    ways = [record for record in map(saved_ways, given) if record is not None]
    runs = [run for run in given if saved_ways(run) is None]
    require_new_file(options.html, overwrite=options.overwrite, is_ours=is_page)
    conditions = parse_conditions(options.where or ())
    opened = [part for run in runs for part in runs_by_model(run, conditions)]
    places = dict.fromkeys(run.name or NO_PLACE for run in opened)  # a campaign is one place with several models
    places |= dict.fromkeys(redact_value(str(run)) for run in given if run not in runs)
    words = ["layerwise", "report", *map(operand, places), *flag_arguments(ReportOptions, options_record(options))]
    found = list(scan_eval_correlations(opened))
    return write_page(options.html, page(opened, ways, title=options.title, correlations=found, command_line=words))


def write_page(path: str | Path, text: str) -> Path:
    write_atomically(Path(path), text.encode("utf-8", errors="replace"))
    return Path(path)


def scan_eval_correlations(runs: Sequence[Run]) -> Iterator[tuple[int, pd.DataFrame]]:
    """The index of each scan, with its correlations with each eval of the same model."""
    scans = [(number, run, run.table.model) for number, run in enumerate(runs) if run.kind == "scan"]
    evals = [(run, run.table.model) for run in runs if run.kind == "eval"]
    for number, scan, scan_model in scans:
        for evaluation, evaluation_model in evals:
            if not same_model(scan_model, evaluation_model):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the page itself shows how many layers there are
                for table in (evaluation.table, select_one_recipe(evaluation.table)):
                    try:
                        yield number, correlations(scan.table, table)
                        break
                    except InputError:  # several prompts or lengths: try only the first; under four layers: nothing
                        continue


def select_one_recipe(evaluation: LayerTable) -> LayerTable:
    """The scores with the map, the template and the length of the main curve: one score per layer and readout."""
    first = evaluation.main_curve()[0]
    return LayerTable(tuple(s for s in evaluation if s.recipe[3:] == first.recipe[3:]), evaluation.run)

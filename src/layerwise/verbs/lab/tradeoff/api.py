"""tradeoff: score and cost of each layer."""

from itertools import islice
from pathlib import Path

import pandas as pd

from layerwise.core.display import command_line
from layerwise.core.errors import InputError, RunError
from layerwise.core.options import takes
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import announcements
from layerwise.inputs.modalities import open_source
from layerwise.models.opening import load_recorded_model
from layerwise.runs.folder import Run, is_run, require_record_folder, run_list, write_record
from layerwise.runs.records import TRADEOFF
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.summary import EXAMPLE_TASK
from layerwise.verbs.lab.tradeoff.measured import pareto_front, tradeoffs
from layerwise.verbs.lab.tradeoff.options import TradeoffOptions, tradeoff_record

TIMED_TEXTS = 16


@takes(TradeoffOptions)
def tradeoff(options: TradeoffOptions) -> pd.DataFrame:
    """What each layer of a run scores and costs: relative time, parameters and memory.

    The model is loaded to be timed. `report` and `plot` show what this leaves in the run's folder.

    Returns:
        One row per layer and way to read it: layer, depth, norm, tokens, transform, score, latency, parameters, bytes.
        `latency` is the CPU time (on a GPU the time by the clock) with the template, where 1.0 is the whole model
        without it: the median of the repeats. `latency_low` and `latency_high` bound their middle half, and `unsteady`
        is True if that is wider than 20 % of the median. With `others`, also the model. For an evaluation also
        `pareto`: True for layers that no other beats at both score and size. A higher value of a scan's metric is not
        better, so nothing is marked there.

    Raises:
        InputError: `run` is a model, or has no such score, or the model is not the one that the run was made with.

    Example:
        >>> table = layerwise.scan(model, texts, metrics="dataset_entropy")
        >>> costs = layerwise.lab.tradeoff(table, "dataset_entropy", data=texts, repeats=1)
        >>> float(costs.parameters.max()) > float(costs.parameters.min())
        True
    """
    require_no_model(options.run)
    opened = Run.open(options.run)
    out_folder = options.run if isinstance(options.run, str | Path) else None
    if out_folder is not None:
        require_record_folder(out_folder, TRADEOFF)  # raises now, not after the timing
    with announcements(options.progress):
        network = load_recorded_model(opened.table.require_model(), options.model)
        require_tokenizer(network.preprocessor, "tradeoff")
        batch = [example.text for example in islice(open_source(options.data), TIMED_TEXTS)]
        beside = [
            (other.table, load_recorded_model(other.table.require_model()))
            for other in map(open_other, run_list(options.others or ()))
        ]
        frame = tradeoffs(
            opened.table,
            network,
            batch,
            score=options.score,
            mode=options.mode,
            repeats=options.repeats,
            others=beside,
            progress=options.progress,
        )
    if out_folder is not None:
        made = {"model": network.identity().to_record(), "options": tradeoff_record(options)}
        write_record(out_folder, TRADEOFF, pareto_front(frame, options.score) | made)
    return frame


def require_no_model(run: object) -> None:
    """Raises where a model was passed instead of a run, with the commands that make one."""
    if isinstance(run, Run | LayerTable):
        return
    if not isinstance(run, str | Path):
        raise InputError(
            f"tradeoff takes an eval run, not a {type(run).__name__}; first run "
            "layerwise.eval(model, tasks, out='scores'), then layerwise.lab.tradeoff('scores')"
        )
    is_model, is_missing = (Path(run) / "config.json").is_file(), not Path(run).exists() and "://" not in str(run)
    if (is_model or is_missing) and not is_run(run):
        what = f"{run} is a model, not an eval run;" if is_model else f"there is no run {run}; if it is a model,"
        scoring = command_line(["layerwise", "eval", str(run), "--tasks", EXAMPLE_TASK, "--out", "scores"])
        raise InputError(f"{what} first run: {scoring}, then: layerwise lab tradeoff scores")


def open_other(run: str | Path | Run | LayerTable) -> Run:
    """Opens a run of `others`; raises RunError that names it."""
    try:
        return Run.open(run)
    except RunError as error:
        raise RunError(f"others (--others): {error}") from None

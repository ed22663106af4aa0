"""tradeoff: score and cost of each layer."""

from itertools import islice
from pathlib import Path

import pandas as pd

from layerwise.core.checks import Choices, ExportMode
from layerwise.core.display import command_line
from layerwise.core.errors import InputError, RunError
from layerwise.core.preprocessors import require_tokenizer
from layerwise.core.progress import announcements
from layerwise.inputs.modalities import open_source
from layerwise.inputs.source import DataLike
from layerwise.models.opening import load_recorded_model
from layerwise.models.spec import ModelLike
from layerwise.runs.folder import Run, is_run, require_record_folder, write_record
from layerwise.runs.records import TRADEOFF
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.summary import EXAMPLE_TASK
from layerwise.verbs.lab.tradeoff.measured import pareto_front, tradeoffs
from layerwise.verbs.lab.tradeoff.options import TradeoffOptions, tradeoff_record

TIMED_TEXTS = 16


def tradeoff(
    run: Run | LayerTable | str | Path,
    score: str = "mean",
    *,
    model: ModelLike | None = None,
    data: DataLike = "demo",
    others: Choices | None = None,
    mode: ExportMode = "portable",
    repeats: int = 5,
    progress: bool = False,
) -> pd.DataFrame:
    """What each layer of a run scores and costs: relative time, parameters and memory.

    The model is loaded to be timed. `report` and `plot` show what this leaves in the run's folder.

    Args:
        run: a run of `eval` or `scan`: its folder or its table.
        score: a task or metric of the run, or "mean" over all tasks.
        model: the model to time, where the name in the run's record no longer leads to it.
        data: texts to time the model on, in any form that `layerwise.texts` takes; the first 16 are used.
        others: folder of an eval run of another model, such as a shrunk or a smaller one, or a list of them. That model
            as shipped becomes a row; it must have been scored on the same tasks.
        mode: which export is costed: "portable" keeps one block more than needed, "compact" none.
        repeats: how often each layer is timed, at most 10,000 times; the median counts.
        progress: show a progress bar, and a line before each slow step, on standard error.

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
    options = TradeoffOptions(
        score=score, model=model, data=data, others=others, mode=mode, repeats=repeats, progress=progress
    )
    require_no_model(run)
    opened = Run.open(run)
    out_folder = run if isinstance(run, str | Path) else None
    if out_folder is not None:
        require_record_folder(out_folder, TRADEOFF)  # raises now, not after the timing
    with announcements(progress):
        network = load_recorded_model(opened.table.require_model(), model)
        require_tokenizer(network.preprocessor, "tradeoff")
        batch = [example.text for example in islice(open_source(data), TIMED_TEXTS)]
        beside = [
            (other.table, load_recorded_model(other.table.require_model()))
            for other in map(open_other, [others] if isinstance(others, str | Path) else others or ())
        ]
        frame = tradeoffs(
            opened.table, network, batch, score=score, mode=mode, repeats=repeats, others=beside, progress=progress
        )
    if out_folder is not None:
        made = {"model": network.identity().to_record(), "options": tradeoff_record(options)}
        write_record(out_folder, TRADEOFF, pareto_front(frame, score) | made)
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

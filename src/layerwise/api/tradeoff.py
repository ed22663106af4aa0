"""tradeoff: what each layer scores and costs."""

from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.checks import ExportMode
from layerwise.core.preprocessors import require_tokenizer
from layerwise.exporter.tradeoff import front, tradeoffs
from layerwise.inputs.modalities import open_source
from layerwise.models.opening import network_of_run
from layerwise.options.record import tradeoff_record
from layerwise.options.tradeoff import TradeoffOptions
from layerwise.runs.folder import Run, require_place_for, write_record
from layerwise.runs.records import TRADEOFF

TIMED_TEXTS = 16


def tradeoff(
    run: Any,
    score: str = "mean",
    *,
    model: Any = None,
    data: Any = "demo",
    mode: ExportMode = "portable",
    repeats: int = 5,
) -> pd.DataFrame:
    """For each layer of an evaluation (or scan): its score, relative latency, parameters and memory.

    Of an evaluation, the column `pareto` marks layers that no other beats at both score and size; a metric of a scan
    has no better end, so nothing is marked. `score` is a task or metric of the run, or `mean` over all tasks. The
    model is loaded to be timed; pass it where the run's own name no longer leads to it. `report` and `plot` show what
    this leaves in the run's folder.
    """
    options = TradeoffOptions(score=score, model=model, data=data, mode=mode, repeats=repeats)
    opened = Run.open(run)
    place = run if isinstance(run, str | Path) else None
    if place is not None:
        require_place_for(place, TRADEOFF)  # noticed now, not after the model was timed
    network = network_of_run(opened.table.require_model(), model)
    require_tokenizer(network.preprocessor, "tradeoff")
    batch = [example.text for example in islice(open_source(data), TIMED_TEXTS)]
    frame = tradeoffs(opened.table, network, batch, score=score, mode=mode, repeats=repeats)
    if place is not None:
        made = {"model": network.identity().to_record(), "options": tradeoff_record(options)}
        write_record(place, TRADEOFF, front(frame, score) | made)
    return frame

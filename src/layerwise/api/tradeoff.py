"""tradeoff: what each layer scores and costs."""

from itertools import islice
from typing import Any

import pandas as pd

from layerwise.api.runs import as_table
from layerwise.core.checks import ExportMode
from layerwise.core.outputs import require_record, write_record
from layerwise.exporter.tradeoff import TRADEOFF_KEYS, front, tradeoffs
from layerwise.inputs.text import open_source
from layerwise.models.opening import network_of_run
from layerwise.options.tradeoff import TradeoffOptions
from layerwise.reporter.content import TRADEOFF_FILE
from layerwise.runs.table import LayerTable

TIMED_TEXTS = 16


def tradeoff(
    run: Any, score: str = "mean", *, model: Any = None, data: Any = "demo", mode: ExportMode = "portable",
    repeats: int = 5,
) -> pd.DataFrame:
    """For each layer of an evaluation (or scan): its score, relative latency, parameters and memory.

    Of an evaluation, the column `pareto` marks layers that no other beats at both score and size; a metric of a scan
    has no better end, so nothing is marked. `score` is a task or metric of the run, or `mean` over all tasks. The
    model is loaded to be timed; pass it where the run's own name no longer leads to it. `report` and `plot` show what
    this leaves in the run's folder.
    """
    TradeoffOptions(score=score, model=model, data=data, mode=mode, repeats=repeats)
    table = as_table(run)
    if not isinstance(run, LayerTable):
        require_record(run, TRADEOFF_FILE, TRADEOFF_KEYS)
    network = network_of_run(table.run, model)
    batch = [example.text for example in islice(open_source(data), TIMED_TEXTS)]
    frame = tradeoffs(table, network, batch, score=score, mode=mode, repeats=repeats)
    if not isinstance(run, LayerTable):
        write_record(run, TRADEOFF_FILE, front(frame, score), TRADEOFF_KEYS)
    return frame

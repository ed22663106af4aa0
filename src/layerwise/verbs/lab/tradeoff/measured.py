"""Trade-off: the score and the cost of each layer, measured on the model cut there, with the Pareto front marked."""

import statistics
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from layerwise.core.checks import SHIPPED
from layerwise.core.errors import ExportError, InputError
from layerwise.core.progress import announce, progress_bar
from layerwise.core.recipe import Readout
from layerwise.inputs.source import Example
from layerwise.models.network import Network
from layerwise.models.readouts import baseline_recipe, last_recipe
from layerwise.passes.timing import RelativeTime, clock_of, measured, relative_times, rounds_of
from layerwise.passes.vectors import pooled_vectors
from layerwise.runs.scores import LayerScore, same_columns
from layerwise.runs.summary import counted
from layerwise.runs.table import LayerTable
from layerwise.verbs.export.backends.sentence_transformers.routes import choose_route

TIMED_LENGTH = 128  # tokens
Other = tuple[LayerTable, Network]  # an eval run of another model, and that model
LATENCY = ("latency", "latency_low", "latency_high", "unsteady")
COLUMNS = ("layer", "depth", "norm", "tokens", "transform", "score", *LATENCY, "parameters", "bytes", "pareto")
Cut = tuple[int, str]  # how many blocks run, and the template that texts are read in


def tradeoffs(
    table: LayerTable,
    network: Network,
    texts: Sequence[str],
    *,
    score: str,
    mode: str,
    repeats: int,
    others: Sequence[Other] = (),
    progress: bool = False,
) -> pd.DataFrame:
    """One row per recipe of the table. Latency, with its template, is a share of the whole model's, as used without
    layerwise; score is in the table's own units.

    With `others`, models as shipped that were scored on the same tasks, there is also a column `model`.

    A higher score on a task is better, so the layers that no other beats are marked; that is not so for a metric.
    """
    scores = mean_scores(table, score)
    cost = {}
    for layer, norm in dict.fromkeys((row.layer, row.norm) for row in scores):
        try:
            cost[layer, norm] = choose_route(network, layer, norm, mode).blocks
        except ExportError:  # this layer of this family cannot be exported, so it has no cost
            continue
    cuts = {(cost[row.layer, row.norm], row.template) for row in scores if (row.layer, row.norm) in cost}
    times = truncated_times(network, sorted(cuts), texts, repeats, progress=progress)
    sizes = {block_count: truncated_parameters(network, block_count) for block_count in set(cost.values())}
    rows = []
    for row in scores:
        if (row.layer, row.norm) in cost:
            block_count = cost[row.layer, row.norm]
            size = sizes[block_count]
            readout = (row.layer, row.depth, row.norm, row.tokens, row.transform)
            latency = latency_cells(times[block_count, row.template])
            rows.append((*readout, row.value, *latency, size, size * network.dtype.itemsize))
    frame = pd.DataFrame(rows, columns=list(COLUMNS[:-1]))
    if others:
        more = other_models(table, network, others, texts, score=score, repeats=repeats)
        frame = pd.concat([frame.assign(model=Path(network.name).name), more], ignore_index=True)
        frame = frame[["model", *COLUMNS[:-1]]]
    if not is_task(scores[0]):
        return frame
    # Fewer parameters always run in less time, so timing noise need not decide which layers are on the front.
    frame["pareto"] = [
        s == s and not ((frame.score > s) & (frame.parameters <= p) | (frame.score >= s) & (frame.parameters < p)).any()
        for s, p in zip(frame.score, frame.parameters, strict=True)
    ]
    return frame


def other_models(
    table: LayerTable, network: Network, others: Sequence[Other], texts: Sequence[str], *, score: str, repeats: int
) -> pd.DataFrame:
    """One row per other model as shipped: its score on the same tasks, and its time and size."""
    clock = clock_of(network.device)
    found, measures = [], [measured(-1, partial(shipped_pass, network, texts), clock)]
    for i, (other, its_network) in enumerate(others):
        require_same_tasks(table, other, score, its_network.name)
        shipped = [
            row for row in mean_scores(other, score) if row.layer == its_network.depth and row.transform == "none"
        ]
        if not shipped:
            raise InputError(f"the run of {its_network.name} has no score of its last layer; run eval --layers last")
        row = next((row for row in shipped if row.norm == SHIPPED), shipped[-1])
        size = sum(p.numel() for p in its_network.module.parameters())
        readout = (row.layer, row.depth, row.norm, row.tokens, row.transform)
        found.append(((*readout, row.value), size, size * its_network.dtype.itemsize, Path(its_network.name).name))
        measures.append(measured(i, partial(shipped_pass, its_network, texts), clock))
    announce(f"timing {len(others)} other models in turns with {Path(network.name).name}")
    times = relative_times(measures, -1, repeats)
    rows = [(*scored, *latency_cells(times[i]), *size) for i, (scored, *size) in enumerate(found)]
    return pd.DataFrame(rows, columns=[*COLUMNS[:-1], "model"])


def latency_cells(time: RelativeTime) -> tuple[float, float, float, bool]:
    return time.ratio, time.low, time.high, time.unsteady


def shipped_pass(network: Network, texts: Sequence[str]) -> object:
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    readout = last_recipe(network).readout
    return pooled_vectors(network, examples, [readout], max_length=min(TIMED_LENGTH, network.max_length))


def require_same_tasks(table: LayerTable, other: LayerTable, score: str, name: str) -> None:
    """Raises if a mean would be over different tasks."""
    ours, theirs = ({row.metric for row in rows if score in ("mean", row.metric)} for rows in (table, other))
    if ours != theirs:
        differing = ", ".join(sorted(ours ^ theirs)[:5])
        raise InputError(f"the run of {name} has scores of other tasks ({differing}); score both on the same ones")


def pareto_front(frame: pd.DataFrame, score: str) -> dict[str, Any]:
    """The best recipe of each layer, for the figures: layers with score, latency, parameters, memory, pareto.

    For a metric, where higher is not better, it is the first recipe of each layer, and none is on the front.
    """
    others = frame[frame.model != frame.model.iloc[0]] if "model" in frame else frame.iloc[:0]
    frame = frame.drop(index=others.index)
    ordered = frame.sort_values("score", ascending=False) if "pareto" in frame else frame.assign(pareto=False)
    best = ordered.drop_duplicates("layer").sort_values("layer")
    named = others.rename(columns={"bytes": "memory"}).to_dict(orient="records")
    beside = [{name: row[name] for name in ("model", "score", "latency", "parameters", "memory")} for row in named]
    names = ["layer", "score", "latency", "parameters", "memory", "pareto"]
    rows = [
        {name: None if value != value else value for name, value in row.items()}  # JSON has no nan
        for row in best.rename(columns={"bytes": "memory"})[names].to_dict(orient="records")
    ]
    units = {"score": score, "latency": "share of the whole model's time", "memory": "bytes"}
    return {"layers": rows, "units": units} | ({"others": beside} if beside else {})


def mean_scores(table: LayerTable, score: str) -> list[LayerScore]:
    """One row per recipe: of one task or metric, or the mean over all tasks of an evaluation."""
    metrics = sorted({row.metric for row in table})
    if score == "mean" and not all(is_task(row) for row in table):
        raise InputError(f"the metrics of a scan cannot be averaged; choose one: --score {metrics[0]}")
    if score != "mean" and score not in metrics:
        raise InputError(f"no score {score!r} in this run; choose from {', '.join(metrics)}, or mean (over tasks)")
    groups: dict[tuple[Any, ...], list[LayerScore]] = {}
    chosen = [row for row in table if score in ("mean", row.metric)]
    main = LayerTable(tuple(chosen)).main_curve()[0]
    for row in chosen:
        # Of a metric in several row treatments, levels of stress or points: a mean over them has no meaning.
        if same_columns(row, main, ("rows", "condition", "point")) and str(row.level) == str(main.level):
            groups.setdefault((row.layer, row.dtype, *row.recipe), []).append(row)
    for rows in groups.values():
        require_unique_scores(rows)
    task_count = max(map(len, groups.values()))
    complete = [
        rows for rows in groups.values() if len(rows) == task_count
    ]  # a mean over fewer tasks is another number
    if len(complete) < len(groups):
        incomplete = sorted({rows[0].layer for rows in groups.values() if len(rows) < task_count})
        names = ", ".join(map(str, incomplete))
        warnings.warn(f"layers {names} have scores of fewer than {task_count} tasks and are left out", stacklevel=3)
    return [
        LayerScore(**vars(rows[0]) | {"metric": score, "value": statistics.fmean(row.value for row in rows)})
        for rows in complete
    ]


def require_unique_scores(rows: Sequence[LayerScore]) -> None:
    """Raises where a recipe has two values of one metric, as on two data sets: their mean has no meaning."""
    if len({row.metric for row in rows}) < len(rows):
        names = ("data", "data_hash", "settings_hash", "model", "revision", "model_hash")
        differing = [name for name in names if len({getattr(row, name) for row in rows}) > 1]
        raise InputError(
            f"{rows[0].metric} has several values for layer {rows[0].layer}, which differ in "
            f"{', '.join(differing) or 'nothing but the value'}; select one of them with table.where(...)"
        )


def is_task(row: LayerScore) -> bool:
    """True for a task score, where higher is better; False for a metric of a scan."""
    return row.rows == "-"


def truncated_parameters(network: Network, block_count: int) -> int:
    """The number of parameters of the model truncated to `keep` blocks."""
    if network.structure.shares_blocks:
        return sum(p.numel() for p in network.module.parameters())
    blocks = list(network.structure.blocks)[block_count:]
    removed = {id(p): p.numel() for block in blocks for p in block.parameters()}
    return sum(p.numel() for p in network.module.parameters()) - sum(removed.values())


def truncated_times(
    network: Network, cuts: Sequence[Cut], texts: Sequence[str], repeats: int, *, progress: bool = False
) -> dict[Cut, RelativeTime]:
    """Time of a pass that stops after so many blocks, relative to the whole model without the template."""
    examples = [Example(str(i), text) for i, text in enumerate(texts)]

    def run(cut: Cut) -> object:
        block_count, template = cut
        length = min(TIMED_LENGTH, network.max_length)
        return pooled_vectors(network, examples, [Readout(block_count)], max_length=length, template=template)

    whole, clock = (network.depth, baseline_recipe(network).template), clock_of(network.device)
    runs = [measured(cut, partial(run, cut), clock) for cut in sorted({*cuts, whole})]
    announce(f"timing {counted(len(runs), 'depth')} on {counted(len(texts), 'text')}, {rounds_of(repeats)} times each")
    with progress_bar(progress, len(runs) * rounds_of(repeats), "passes") as on_batch:
        return relative_times(runs, whole, repeats, on_run=partial(on_batch, 1, 0))
